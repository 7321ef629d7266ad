"""Byte streams to hosts over ssh. Two backends stand behind `link.base.Link`."""
