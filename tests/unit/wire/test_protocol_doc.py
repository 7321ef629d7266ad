"""PROTOCOL.md's tables say what the code does."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import tunnelkit.wire
from tunnelkit.agent.agent import Agent
from tunnelkit.agent.mirror import batch_channel
from tunnelkit.agent.mirror.replaced_files import REPLACED_DIR
from tunnelkit.agent.mirror.service import MirrorService
from tunnelkit.agent.mirror.staging import PART_PREFIX
from tunnelkit.agent.nodes.node_agents import NodeAgents
from tunnelkit.agent.processes.table import ProcessTable
from tunnelkit.mux import loop_records, parcels, rpc
from tunnelkit.wire import endpoint, frames, handshake
from tunnelkit.wire.frames import FIRST_UNNUMBERED, HEADER, PAYLOAD_LENGTHS, Kind
from tunnelkit.wire.handshake import MAGIC, NO_ID, VERSION, Hello, Status

TEXT = (Path(tunnelkit.wire.__file__).parent / "PROTOCOL.md").read_text(encoding="utf-8")


def table(first_column: str, second_column: str) -> list[list[str]]:
    """The rows of the one table whose header begins with these two columns."""
    found = []
    rows: list[list[str]] | None = None
    for line in TEXT.splitlines():
        if not line.startswith("|"):
            rows = None
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if cells[:2] == [first_column, second_column]:
            rows = []
            found.append(rows)
        elif rows is not None and not set(line) <= set("|- "):
            rows.append(cells)
    assert found, f"no table {first_column} | {second_column}"
    return found[0]


def tables(first_column: str, second_column: str) -> int:
    return TEXT.count(f"| {first_column} | {second_column} |")


def lengths(text: str) -> range:
    low, _, high = text.partition(" to ")
    return range(int(low), int(high or low) + 1)


def test_version() -> None:
    assert TEXT.startswith(f"# The tunnelkit wire, version {VERSION[0]}.{VERSION[1]}\n")


def test_kinds() -> None:
    rows = table("kind", "value")
    assert {name: int(value) for name, value, *_ in rows} == {kind.name: int(kind) for kind in Kind}
    for name, value, numbered, payload, _ in rows:
        assert (int(value) < FIRST_UNNUMBERED) == (numbered == "yes"), name
        assert lengths(payload) == PAYLOAD_LENGTHS[Kind[name]], name


def test_frame_header() -> None:
    assert tables("field", "type") == 3, "frames, records and parcels"
    rows = table("field", "type")
    widths = [int(kind[1:]) // 8 for _, kind, _ in rows if re.fullmatch(r"u\d+", kind)]
    codes = {1: "B", 4: "I", 8: "Q"}
    assert "!" + "".join(codes[width] for width in widths) == HEADER.format
    assert f"{HEADER.size} bytes of header" in TEXT


def test_hello() -> None:
    rows = table("field", "width in bytes")
    hello = Hello(Status.RESUME, b"c" * 16, b"s" * 16, 0x0102030405060708, 0x0A0B0C0D)
    values = {
        "magic": MAGIC,
        "major": struct.pack("!H", VERSION[0]),
        "minor": struct.pack("!H", VERSION[1]),
        "status": bytes([Status.RESUME]),
        "client_id": hello.client_id,
        "server_id": hello.server_id,
        "received": struct.pack("!Q", hello.received),
        "window": struct.pack("!I", hello.window),
    }
    assert [name for name, *_ in rows] == list(values)
    assert [int(width) for _, width, _ in rows] == [len(value) for value in values.values()]
    assert hello.encode() == b"".join(values.values())
    assert MAGIC.hex(" ") in rows[0][2]
    assert len(NO_ID) == 16


def test_statuses() -> None:
    rows = table("status", "value")
    assert {name: int(value) for name, value, *_ in rows} == {one.name: int(one) for one in Status}


def test_limits() -> None:
    limits = {what: int(limit.split()[0]) for what, limit in table("what", "limit")}
    assert limits == {
        "noise before the magic": handshake.MAX_NOISE_BYTES,
        "DATA payload": frames.MAX_DATA_BYTES,
        "any payload": frames.MAX_PAYLOAD_BYTES,
        "PING and PONG payload": frames.MAX_PING_BYTES,
        "BYE payload": frames.MAX_BYE_BYTES,
        "channels opened by one side and not gone": endpoint.MAX_CHANNELS,
        "channel id": endpoint.MAX_CHANNEL_ID,
        "window, unless configured": endpoint.DEFAULT_WINDOW_BYTES,
    }
    assert f"the latest {endpoint._MAX_PINGS}" in TEXT


def test_the_layer_above() -> None:
    assert f"at most {rpc.MAX_MESSAGE_BYTES}" in TEXT
    agent = Agent.__new__(Agent)
    agent.files = MirrorService()
    agent._peers = NodeAgents(ProcessTable(), "tk")
    handlers = agent._handlers()
    assert sorted(name for name, *_ in table("call", "params")) == sorted(handlers)
    kinds = (
        f"{loop_records.EVENT} EVENT, {loop_records.STDOUT} STDOUT, {loop_records.STDERR} STDERR"
    )
    assert kinds in TEXT


def test_the_mirror() -> None:
    for limit in (parcels.MAX_HEADER_BYTES, parcels.MAX_DATA_BYTES):
        assert f"at most {limit}" in TEXT
    names = [name for cell, *_ in table("op", "keys") for name in cell.split(", ")]
    assert sorted(names) == sorted([*batch_channel._OPS, "begin", "commit", "abort"])
    assert f"`{PART_PREFIX}NONCE-N`" in TEXT
    assert f"`{REPLACED_DIR.decode()}/REPLACED/path`" in TEXT
