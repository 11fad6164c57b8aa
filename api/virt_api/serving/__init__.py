"""The port itself: who may connect, how long they may take, how much of what they send is kept."""
