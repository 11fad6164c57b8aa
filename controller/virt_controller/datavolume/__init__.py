"""DataVolumes where the cluster has no CDI: claims are made and filled by importer Pods."""
