"""The pool controller: a number of VMs made from one template, each with a number of its own."""
