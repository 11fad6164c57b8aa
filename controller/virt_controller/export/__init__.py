"""VirtualMachineExports: claims that are served to who has a token, by a Pod that reads them."""
