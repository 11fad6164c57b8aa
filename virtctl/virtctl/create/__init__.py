"""`virtctl create`: manifests, printed and not sent anywhere."""
