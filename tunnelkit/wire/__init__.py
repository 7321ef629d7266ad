"""The wire: numbered frames on channels that outlive the link that carries them.

Sans-IO: no socket, no clock, no asyncio. PROTOCOL.md beside this file gives the
bytes. Runs on both ends, so Python 3.8 and the standard library only.
"""
