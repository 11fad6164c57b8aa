"""CustomResourceDefinitions: from the stored definition to served kinds."""
