"""The aggregated API subresources.kubevirt.io: console, vnc, pause, unpause, guestosinfo."""
