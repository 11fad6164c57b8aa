"""One module a binding: each turns the Pod's NIC into the steps that wire a guest to it."""
