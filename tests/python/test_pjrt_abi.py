"""src/pjrt/c_api.h is written by hand: every struct, member and table place in it is compared
with a published header, by the compiler. The header comes out of a pinned wheel, downloaded for
this test only; nothing of it is kept in the repository."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from legs import ROOT

WHEEL = "xla-cpu-pjrt==0.0.1"
WHEEL_SHA256 = "55837b6b7b47daa717f2d9a5a03563ea0ceaa338d06a81a1e2d3f060d960decc"
HEADER = "xla_plugins/xla_cpu_pjrt/include/pjrt_c_api.h"
OURS = ROOT / "src" / "pjrt" / "c_api.h"
# Theirs, where it is not PJRT_ + our words joined by underscores.
STRUCTS = {
    "Extension": "PJRT_Extension_Base",
    "Api": "",  # its entries are compared one by one
    "Head": "PJRT_Plugin_Initialize_Args",
    "ApiVersion": "PJRT_Api_Version",
    "NamedValue": "PJRT_NamedValue",
    "ExecuteOptions": "PJRT_ExecuteOptions",
    "Program": "PJRT_Program",
    "TransferDataArgs": "PJRT_AsyncHostToDeviceTransferManager_TransferData_Args",
    "RetrieveBufferArgs": "PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args",
    "ExecutableMemoryStatsArgs": "PJRT_Executable_GetCompiledMemoryStats_Args",
    "EventArgs": "PJRT_Event_Await_Args",
    "BufferArgs": "PJRT_Buffer_Destroy_Args",
    "BufferSizeArgs": "PJRT_Buffer_OnDeviceSizeInBytes_Args",
}
ENTRIES = {
    "TransferData": "AsyncHostToDeviceTransferManager_TransferData",
    "RetrieveBuffer": "AsyncHostToDeviceTransferManager_RetrieveBuffer",
}
# Newer than the published header: compared by no one here.
NEWER_STRUCTS = {"Error", "ErrorFunctions", "ErrorForEachPayloadArgs"}
NEWER_MEMBERS = {"peak_allocated_bytes", "peak_allocated_bytes_is_set"}
NEWER_ENTRIES = {"ErrorForEachPayload", "EntryCount"}
OBJECTS = [
    "LoadedExecutable",
    "Executable",
    "Plugin",
    "Client",
    "Device",
    "Buffer",
    "Memory",
    "Error",
]


def their_name(ours: str) -> str:
    if ours in STRUCTS:
        return STRUCTS[ours]
    words = re.fullmatch(r"(\w+?)Args", ours)
    assert words, f"no rule for {ours}"
    thing = next(o for o in OBJECTS if words[1].startswith(o))
    return f"PJRT_{thing}_{words[1].removeprefix(thing)}_Args"


def structs_of(text: str) -> dict[str, list[str]]:
    found = {}
    for name, body in re.findall(
        r"^struct (\w+) \{[^\n]*\n(.*?)^\};", text, re.MULTILINE | re.DOTALL
    ):
        if name in NEWER_STRUCTS:
            continue
        members = re.findall(r"(\w+);", re.sub(r"//[^\n]*|\([^)]*\)", "", body))
        found[name] = [m for m in members if m not in NEWER_MEMBERS]
    return found


def entries_of(text: str) -> dict[str, int]:
    body = re.search(r"enum Entry : size_t \{(.*?)\};", text, re.DOTALL)
    assert body
    return {n: int(v) for n, v in re.findall(r"k(\w+) = (\d+)", body[1]) if n not in NEWER_ENTRIES}


@pytest.fixture(scope="module")
def header(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cache = Path(os.environ.get("ANYCHIP_WHEEL_CACHE") or ROOT / "build" / "wheels")
    cache.mkdir(parents=True, exist_ok=True)
    wheel = next(cache.glob("xla_cpu_pjrt-0.0.1-*.whl"), None)
    if wheel is None:
        pip = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--dest",
            str(cache),
        ]
        got = subprocess.run(
            [*pip, WHEEL], capture_output=True, text=True, timeout=300, check=False
        )
        wheel = next(cache.glob("xla_cpu_pjrt-0.0.1-*.whl"), None)
        if wheel is None:
            why = got.stderr.strip().splitlines()
            pytest.skip(f"{WHEEL} cannot be downloaded: {why[-1] if why else got.returncode}")
    with wheel.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == WHEEL_SHA256
    folder = tmp_path_factory.mktemp("header")
    with zipfile.ZipFile(wheel) as archive:
        archive.extract(HEADER, folder)
    return folder / HEADER


def compiles(source: str, header: Path, folder: Path) -> str:
    file = folder / "check.cc"
    file.write_text(source)
    compiler = shutil.which("g++")
    assert compiler, "g++ is not installed"
    command = [
        compiler,
        "-std=c++20",
        "-fsyntax-only",
        "-w",
        f"-I{ROOT / 'src'}",
        f"-I{header.parent}",
    ]
    return subprocess.run([*command, str(file)], capture_output=True, text=True, check=False).stderr


def check_source(text: str) -> str:
    lines = [
        '#include "pjrt_c_api.h"',
        f'#include "{OURS}"',
        "namespace abi = anychip::pjrt::abi;",
        "template <class A, class B> constexpr bool same_size = sizeof(A) == sizeof(B);",
    ]
    for ours, members in structs_of(text).items():
        theirs = their_name(ours)
        if not theirs:
            continue
        assert members, f"no members of {ours} were read"
        for member in members:
            lines.append(
                f"static_assert(offsetof(abi::{ours}, {member}) == offsetof({theirs}, {member}) &&"
                f" same_size<decltype(abi::{ours}::{member}), decltype({theirs}::{member})>,"
                f' "{ours}.{member}");'
            )
    for ours, place in entries_of(text).items():
        lines.append(
            f"static_assert(std::string_view(names[{place}]) =="
            f' "{ENTRIES.get(ours, ours)}", "{ours}");'
        )
    bits = "static_assert(abi::kBitsOfType[PJRT_Buffer_Type_{}] == {});"
    sizes = {"PRED": 8, "S64": 64, "F16": 16, "F32": 32, "F64": 64, "BF16": 16, "C128": 128,
             "F8E4M3FNUZ": 8, "S4": 4, "TOKEN": 0, "U2": 2, "F4E2M1FN": 4}  # fmt: skip
    for name, size in sizes.items():
        lines.append(bits.format(name, size))
    lines.append("static_assert(abi::kTypeF32 == PJRT_Buffer_Type_F32);")
    for code in [
        "kInvalidArgument",
        "kResourceExhausted",
        "kUnimplemented",
        "kInternal",
        "kFailedPrecondition",
    ]:
        upper = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", code[1:]).upper()
        lines.append(f"static_assert(int(abi::{code}) == int(PJRT_Error_Code_{upper}));")
    lines.append("static_assert(int(abi::kInt64) == int(PJRT_NamedValue_kInt64));")
    return "\n".join(lines) + "\n"


def with_names(source: str, header_text: str) -> str:
    """Adds the order of the published table: entry names without PJRT_, the underscores as ours."""
    table = re.findall(r"^\s+_PJRT_API_STRUCT_FIELD\(PJRT_(\w+)\);", header_text, re.MULTILINE)
    assert len(table) > 100
    known = set(ENTRIES.values())
    names = ", ".join(f'"{n if n in known else n.replace("_", "")}"' for n in table)
    head, rest = source.split("namespace abi", 1)
    table = f"#include <string_view>\nconstexpr const char* names[] = {{{names}}};\n"
    return f"{head}{table}namespace abi{rest}"


def test_matches_the_published_header(header: Path, tmp_path: Path) -> None:
    text = OURS.read_text()
    assert len(structs_of(text)) >= 30
    assert len(entries_of(text)) >= 30
    source = with_names(check_source(text), header.read_text())
    assert source.count("static_assert") > 200
    assert compiles(source, header, tmp_path) == ""


def test_a_wrong_member_and_a_wrong_place_are_found(header: Path, tmp_path: Path) -> None:
    text = OURS.read_text()
    source = with_names(check_source(text), header.read_text())
    wrong_place = source.replace("names[10]", "names[11]")
    assert "ClientCreate" in compiles(wrong_place, header, tmp_path)
    wrong_member = source.replace(
        "offsetof(abi::ClientCreateArgs, client)",
        "4 + offsetof(abi::ClientCreateArgs, client)",
    )
    assert "ClientCreateArgs.client" in compiles(wrong_member, header, tmp_path)
