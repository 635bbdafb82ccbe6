#!/usr/bin/env python3
"""corpus.py TABLES OUT: seeds for the fuzz targets from test/packets/*.tsv.

OUT/decode has a file for each packet, led by the byte decode_fuzz.cpp reads; OUT/frame has a stream
for each table and sender. OUT/broker has courses of events as broker_fuzz.cpp reads them. What the
fuzzer found on its own is in test/fuzz/corpus/TARGET.hex.

corpus.py --keep TARGET FOLDER: writes that file from the inputs in FOLDER.
"""
import pathlib
import sys

FOUND = pathlib.Path(__file__).parent / "corpus"

if sys.argv[1] == "--keep":
    target, folder = sys.argv[2], pathlib.Path(sys.argv[3])
    inputs = sorted((path.read_bytes() for path in folder.iterdir()), key=lambda i: (len(i), i))
    (FOUND / f"{target}.hex").write_text(
        f"# Inputs of {target}_fuzz.cpp, one a line: make fuzz-corpus FUZZ_TARGETS={target}\n"
        + "".join(each.hex() + "\n" for each in inputs))
    sys.exit()

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

# Steps: operation | peer << 4, then what the operation reads. Here: peers 0 to 3 connect (5.0 and
# 3.1.1), subscribe, publish, acknowledge; some stall, vanish and come back.
CONNECTS = [(0x00, 0x04, 0x04), (0x10, 0x15, 0x00), (0x20, 0x20, 0x0A), (0x30, 0x24, 0x35)]
COURSES = {
    "fan_out": [(0x02, 1, 2), (0x12, 2, 1), (0x22, 0, 0)] + [(0x33, q, 1, 1) for q in range(3)],
    "shared": [(0x02, 1, 4), (0x12, 1, 4), (0x22, 1, 5)] + [(0x33, 1, 1, i) for i in range(6)]
    + [(0x06, 4), (0x18,), (0x28,), (0x0C, 20)],
    "retained": [(0x33, 4, 1, 1), (0x33, 5, 2, 1), (0x02, 1, 2), (0x0A, 1), (0x0A, 2), (0x0B, 1, 0)],
    "slow": [(0x02, 1, 2), (0x09,)] + [(0x33, 0x31, 1, i) for i in range(12)] + [(0x09,), (0x0C, 9)],
    "resume": [(0x02, 2, 2), (0x33, 2, 1, 1), (0x08,), (0x33, 2, 1, 2), CONNECTS[0], (0x0A, 9)],
    "sql": [(0x02, 1, 2), (0x0D, 3, 0x84, 0x85, 0x8C), (0x0A, 1), (0x0E, 0), (0x0E, 1)],
}
(out / "broker").mkdir(parents=True, exist_ok=True)
for name, steps in COURSES.items():
    seed = b"".join(bytes(step) for step in CONNECTS + steps)
    (out / "broker" / name).write_bytes(seed)

for found in FOUND.glob("*.hex"):
    (out / found.stem).mkdir(parents=True, exist_ok=True)
    for number, line in enumerate(found.read_text().splitlines()):
        if not line.startswith("#"):
            (out / found.stem / f"found_{number}").write_bytes(bytes.fromhex(line))
