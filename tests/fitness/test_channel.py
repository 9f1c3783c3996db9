"""Bytes between us and untrusted processes: all of them, in time, or an error that says so."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitness.sandbox.channel import receive, receive_frame, send, send_frame


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=5), st.integers(1, 7))
def test_frames_arrive_whole_however_they_are_cut(frames: list[bytes], piece: int) -> None:
    ours, theirs = socket.socketpair()
    whole = b"".join(struct.pack("<I", len(frame)) + frame for frame in frames)

    def write() -> None:
        for begin in range(0, len(whole), piece):
            theirs.sendall(whole[begin : begin + piece])

    with ours, theirs:
        writer = threading.Thread(target=write)
        writer.start()
        assert [receive_frame(ours, time.monotonic() + 10) for _ in frames] == frames
        writer.join()


def test_more_than_a_socket_holds_at_once(ends: tuple[socket.socket, socket.socket]) -> None:
    data = os.urandom(5 << 20)
    writer = threading.Thread(target=send_frame, args=(ends[1], data))
    writer.start()
    assert receive_frame(ends[0]) == data
    writer.join()


def test_descriptors_come_with_the_bytes_they_were_sent_with(ends: tuple[socket.socket, socket.socket]) -> None:
    read, write = os.pipe()
    send_frame(ends[1], b"x" * 1000, [write])
    os.close(write)
    found: list[int] = []
    assert receive_frame(ends[0], fds=found) == b"x" * 1000
    os.write(found[0], b"through")
    assert os.read(read, 10) == b"through"
    for fd in (read, *found):
        os.close(fd)


def test_nobody_waits_longer_than_the_deadline_nor_for_who_is_gone(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    send(theirs, b"half")
    begin = time.monotonic()
    with pytest.raises(TimeoutError):
        receive(ours, 8, begin + 0.1)
    assert time.monotonic() - begin >= 0.1
    send(theirs, b"rest")
    theirs.close()
    assert receive(ours, 2, time.monotonic() - 1) == b"re"  # what is there already needs no time
    with pytest.raises(EOFError):
        receive(ours, 8)
    with pytest.raises(OSError):
        send(ours, b"too late")


def test_a_length_beyond_what_is_allowed_is_not_waited_for(ends: tuple[socket.socket, socket.socket]) -> None:
    send(ends[1], struct.pack("<I", 101))
    with pytest.raises(ValueError, match="101 bytes"):
        receive_frame(ends[0], most_bytes=100)
