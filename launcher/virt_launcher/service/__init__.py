"""launcher/v1 and notify/v1: how virt-handler and this launcher speak."""
