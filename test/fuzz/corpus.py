#!/usr/bin/env python3
"""corpus.py TABLES OUT: seeds for the fuzz targets from test/packets/*.tsv.

OUT/decode has a file for each packet, led by the byte decode_fuzz.cpp reads; OUT/frame has a stream
for each table and sender.
"""
import pathlib
import sys

VERSIONS = {"3.1": 0, "3.1.1": 1, "5.0": 2}
SERVER = 4

tables, out = map(pathlib.Path, sys.argv[1:])
(out / "decode").mkdir(parents=True, exist_ok=True)
(out / "frame").mkdir(parents=True, exist_ok=True)
for table in sorted(tables.glob("*.tsv")):
    streams = {}
    for line in table.read_text().splitlines():
        if line.startswith("#"):
            continue
        name, version, sender, packet = line.split("\t")[:4]
        lead = VERSIONS[version] | (SERVER if sender == "server" else 0)
        seed = bytes([lead]) + bytes.fromhex(packet)
        (out / "decode" / f"{table.stem}_{name}").write_bytes(seed)
        streams.setdefault(sender, bytearray(b"\x01")).extend(seed[1:])
    for sender, stream in streams.items():
        (out / "frame" / f"{table.stem}_{sender}").write_bytes(stream)
