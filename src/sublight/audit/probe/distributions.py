"""Installed distributions: metadata, who owns which import name, and files that two of them claim.

Owners are found by file against RECORD: a package that a .pth file puts on the path (nvidia-cutlass-dsl's `cutlass`)
has no top-level entry in any metadata.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import re
import sys
from typing import Any

_INFO = ".dist-info"
_CLASH_BYTES = 64 * 1024 * 1024  # larger files that two distributions claim are compared by nobody
_SOURCES = (".py", ".so", ".pyd")


def describe(path: list[str] | None = None, known: str = "") -> dict[str, Any]:
    """Every distribution on `path` (default: the interpreter's own).

    Args:
        known: a fingerprint from an earlier answer; when nothing has changed the answer is only that.
    """
    listed = dict.fromkeys(sys.path if path is None else path)
    entries = [entry for entry in listed if entry and os.path.isdir(entry)]
    folders = [os.path.join(entry, name) for entry in entries for name in _listing(entry) if name.endswith(_INFO)]
    fingerprint = _fingerprint(entries, folders)
    if known == fingerprint:
        return {"fingerprint": fingerprint, "unchanged": True}
    seen: set[str] = set()
    found, records = [], []
    for folder in folders:
        distribution, files = _read(folder)
        key = re.sub(r"[-_.]+", "-", distribution["name"]).lower()
        if not distribution["error"] and key in seen:
            continue  # the first one on the path is the one that counts
        seen.add(key)
        found.append(distribution)
        records.append(files)
    return {
        "fingerprint": fingerprint,
        "unchanged": False,
        "distributions": found,
        "owners": _owners(entries, found, records),
        "clashes": _clashes(found, records),
        "pth": _pth(entries),
    }


def _listing(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _fingerprint(entries: list[str], folders: list[str]) -> str:
    """Changes when a distribution is installed, removed or reinstalled, and when the path changes."""
    digest = hashlib.sha256("\0".join(entries).encode("utf-8", "surrogateescape"))
    for folder in [*folders, *(os.path.join(e, n) for e in entries for n in _listing(e) if n.endswith(".pth"))]:
        for name in (folder, os.path.join(folder, "METADATA"), os.path.join(folder, "RECORD")):
            try:
                state = os.stat(name)
            except OSError:
                continue
            digest.update(f"{name} {state.st_size} {state.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _read(folder: str) -> tuple[dict[str, Any], dict[str, str]]:
    """One .dist-info folder, and the files its RECORD lists: path from the site folder -> hash as written there."""
    base = os.path.basename(folder)[: -len(_INFO)]
    name, _, version = base.partition("-")
    fields, error = _metadata(os.path.join(folder, "METADATA"))
    files, digest, record_error = _record(os.path.join(folder, "RECORD"))
    distribution = {
        "name": (fields.get("name") or [name])[0],
        "version": (fields.get("version") or [version])[0],
        "folder": os.path.dirname(folder),
        "info": os.path.basename(folder),
        "requires": fields.get("requires-dist", []),
        "files": len(files),
        "record": digest,
        "error": error or record_error,
    }
    return distribution, files


def _metadata(path: str) -> tuple[dict[str, list[str]], str]:
    """The header fields of a METADATA file, lower-case name -> values."""
    fields: dict[str, list[str]] = {}
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                if not line.rstrip("\r\n"):  # blanks alone continue a field, such as the text of a licence
                    break
                name, colon, value = line.partition(":")
                if colon and not line[0].isspace():
                    fields.setdefault(name.strip().lower(), []).append(value.strip())
    except OSError as error:
        return fields, f"METADATA cannot be read: {error.strerror or error}"
    lacking = [name for name in ("name", "version") if not (fields.get(name) or [""])[0]]
    return fields, f"METADATA has no {' and no '.join(map(str.capitalize, lacking))}" if lacking else ""


def _record(path: str) -> tuple[dict[str, str], str, str]:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        return {}, "", f"RECORD cannot be read: {error.strerror or error}"
    files: dict[str, str] = {}
    bad = 0
    for row in csv.reader(data.decode("utf-8", "replace").replace("\0", "").splitlines()):
        if len(row) == 3:
            files[row[0]] = row[1]
        elif row:
            bad += 1
    what = "line that is no entry" if bad == 1 else "lines that are no entries"
    problem = f"RECORD has {bad} {what}" if bad else ""
    return files, hashlib.sha256(data).hexdigest(), problem


def _owners(entries: list[str], found: list[dict[str, Any]], records: list[dict[str, str]]) -> dict[str, Any]:
    """Import name -> the distributions that ship it, and how many of its files.

    A folder on the path that lies inside another one (put there by a .pth file) is a second root for the same RECORD.
    """
    owners: dict[str, list[dict[str, Any]]] = {}
    for distribution, files in zip(found, records):
        site = distribution["folder"]
        roots = [os.path.relpath(e, site) + "/" for e in entries if e != site and e.startswith(site + os.sep)]
        for root in ["", *roots]:
            counts: dict[str, int] = {}
            for path in files:
                if path.startswith(root) and path.endswith(_SOURCES):
                    top = path[len(root) :].split("/", 1)[0].split(".", 1)[0]
                    counts[top] = counts.get(top, 0) + 1
            for top, count in counts.items():
                if top.isidentifier() and not any(_covers(top, other, root) for other in roots):
                    entry = {"distribution": distribution["name"], "version": distribution["version"], "files": count}
                    entry["folder"] = os.path.normpath(os.path.join(site, root))
                    owners.setdefault(top, []).append(entry)
    return owners


def _covers(top: str, other: str, root: str) -> bool:
    return bool(root) and other != root and (root + top + "/").startswith(other)


def _clashes(found: list[dict[str, Any]], records: list[dict[str, str]]) -> list[dict[str, Any]]:
    """Pairs of distributions that list the same path with different hashes, and whose file lies on disk."""
    claims: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for number, files in enumerate(records):
        site = found[number]["folder"]
        for path, digest in files.items():
            if digest and not path.startswith(("../", "/")):
                claims.setdefault((site, path), []).append((number, digest))
    pairs: dict[tuple[int, ...], dict[str, Any]] = {}
    for (site, path), owners in claims.items():
        if len(owners) < 2 or len({digest for _, digest in owners}) < 2:
            continue
        on_disk = _hash(os.path.join(site, path), owners[0][1].partition("=")[0])
        pair = pairs.setdefault(tuple(number for number, _ in owners), {"paths": 0, "matches": {}, "examples": []})
        pair["paths"] += 1
        pair["examples"] = [*pair["examples"], path][:3]
        for number, digest in owners:
            name = f"{found[number]['name']} {found[number]['version']}"
            pair["matches"][name] = pair["matches"].get(name, 0) + (on_disk == digest)
    return list(pairs.values())


def _hash(path: str, algorithm: str) -> str:
    """As RECORD writes it: "sha256=" and base64 without padding; "" where it cannot be told."""
    if algorithm not in ("sha256", "sha384", "sha512"):
        return ""
    try:
        if os.path.getsize(path) > _CLASH_BYTES:
            return ""
        with open(path, "rb") as file:
            digest = hashlib.new(algorithm, file.read()).digest()
    except OSError:
        return ""
    text = base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")
    return f"{algorithm}={text}"


def _pth(entries: list[str]) -> list[dict[str, Any]]:
    """The .pth files of the path, and what they add: folders, and lines of code that run at every start."""
    found = []
    for entry in entries:
        for name in _listing(entry):
            if not name.endswith(".pth"):
                continue
            try:
                with open(os.path.join(entry, name), encoding="utf-8", errors="replace") as file:
                    lines = [line.strip() for line in file if line.strip() and not line.startswith("#")]
            except OSError:
                continue
            code = [line[:120] for line in lines if line.startswith(("import ", "import\t"))]
            folders = [os.path.normpath(os.path.join(entry, line)) for line in lines if line[:120] not in code]
            found.append({"file": os.path.join(entry, name), "folders": folders[:20], "code": code[:5]})
    return found
