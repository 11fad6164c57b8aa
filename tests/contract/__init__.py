"""The contract of the two engines: the same requests to virt-local's API server and to the real kube-apiserver.

Each case is a short conversation, written once. What was answered is written down without the values that differ by
nature (`normal.py` lists them by name), and the two transcripts must be equal.
"""
