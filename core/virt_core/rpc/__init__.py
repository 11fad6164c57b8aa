"""gRPC plumbing: servers, channels, TLS, status codes and the version handshake. Light: the launcher imports it."""
