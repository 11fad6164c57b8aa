"""What stands behind a guest's disks: overlays, empty disks, cloud-init images, kernels."""
