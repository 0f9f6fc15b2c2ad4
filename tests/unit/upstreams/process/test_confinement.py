"""A box is data: what it means on this machine, and what a machine lacks for it."""

from __future__ import annotations

import marshal
import resource

import pytest

from toolgate.upstreams.process import confinement
from toolgate.upstreams.process.confinement import MIB, Box, Layers, missing

WHOLE = Layers("Linux", "x86_64", 7, True)


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        (WHOLE, "landlock v7 + seccomp"),
        (Layers("Linux", "x86_64", 0, True), "seccomp"),
        (Layers("Linux", "riscv64", 3, False), "landlock v3"),
        (Layers("Darwin", "arm64", 0, False), "none"),
    ],
)
def test_the_layers_of_a_machine_are_told_in_words(layers: Layers, words: str) -> None:
    assert layers.words == words


LACKING: list[tuple[Box, Layers, list[str]]] = [
    (Box(network="tcp", unix=True), WHOLE, []),
    (Box(), Layers("Darwin", "arm64", 0, False), ["Linux"]),
    (Box(), Layers("Linux", "x86_64", 0, False), ["seccomp", "landlock"]),
    (Box(), Layers("Linux", "x86_64", 5, True), ["signals"]),
    (Box(unix=True), Layers("Linux", "x86_64", 5, True), ["signals", "abstract"]),
    (Box(network="tcp"), Layers("Linux", "x86_64", 3, True), ["ports", "signals"]),
    (Box(profile="script"), Layers("Linux", "x86_64", 1, True), []),
    (Box(profile="jit"), Layers("Linux", "riscv64", 7, False), ["riscv64"]),
]


def test_what_a_machine_lacks_for_a_box_is_told() -> None:
    for box, layers, words in LACKING:
        lacking = missing(box, layers)
        assert len(lacking) == len(words), (box, lacking)
        assert all(word in told for word, told in zip(words, lacking, strict=True))


def test_a_box_can_be_sent_to_the_guard_and_names_nothing_that_was_not_named() -> None:
    box = Box(read=("/a",), write=("/b",), execute=("/c",), network="tcp", ports=(80,), memory=MIB, cpu=3, open_files=9)
    packed = marshal.loads(marshal.dumps(box.packed()))
    paths = [path for _, path in packed["files"]]
    assert [path for path in paths if not path.startswith(b"/dev/")] == [b"/a", b"/b", b"/c"]
    assert packed["ports"] == (80,)
    assert packed["limits"] == {resource.RLIMIT_DATA: MIB, resource.RLIMIT_CPU: 3, resource.RLIMIT_NOFILE: 9}
    assert Box(ports=(80,)).packed()["ports"] == ()
    assert Box(network="all").packed()["ports"] is None
    assert Box().packed()["files"] == []


def test_no_right_lets_a_box_make_a_device() -> None:
    for rights, _ in Box(read=("/a",), write=("/b",), execute=("/c",)).packed()["files"]:
        assert not rights & (1 << 6 | 1 << 11)


def test_deno_reads_its_binary_and_its_entry_and_writes_nothing() -> None:
    box = confinement.box_for_deno("/x/deno", ("/y/worker.js",))
    assert (box.profile, box.write, box.network) == ("jit", (), "none")
    assert "/y/worker.js" in box.read
    assert "/x/deno" in box.execute
