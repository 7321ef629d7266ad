"""How a byte stream to a host is had. Backends stand behind `link.base.Link`."""
