"""Networks of a Pod beside its own, by NetworkAttachmentDefinitions: asked for and told of as with Multus."""
