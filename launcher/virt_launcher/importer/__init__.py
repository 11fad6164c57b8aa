"""`virt-importer`: fills a claim with a disk from somewhere else, in a Pod of its own without any right."""
