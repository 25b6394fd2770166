"""The process that holds a shell on its host. Connections of consoles come and go; the shell stays.

It is made by `shell.py`, listens on a socket that only processes of this host see, and gets from each process that
attaches the two descriptors of its SSH channel. So nothing else relays a key: sshd, this process, the terminal.

Output goes to all viewers. The program waits for viewers who type, as it waits for a terminal; not for those who only
watch, nor for one that takes nothing any more: they are told what they have lost. Without anybody it may print 1 MiB a
second, so that a helper of the training is not held up and `yes` burns no core.
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
import socket
import struct
import time
from typing import Callable, Dict, List

from agents.runner.files import unlink
from agents.runner.forks import wake_on_signals
from agents.runner.shells.frames import (
    BEAT,
    BEAT_S,
    CLOSE,
    END,
    HEAD,
    IN,
    NOTE,
    PATIENT_S,
    SILENT_S,
    SIZE,
    TOOK,
    frame,
    json_frame,
    json_line,
)
from agents.runner.shells.recording import Recorder
from agents.runner.shells.requests import in_range, receive, size_of
from agents.runner.shells.ring import DEFAULT_BYTES, Ring
from agents.runner.shells.terminal import Program, Terminal, end_of
from agents.runner.shells.viewers import Viewer
from agents.runner.wire import Message, WireError

VERSION = 2
# How far a viewer who types may be behind before the program must wait.
BEHIND_BYTES = 64 * 1024
# Typed bytes that the program has not read; beyond this, viewers who type must wait.
MAX_TYPED = 64 * 1024
UNATTENDED_RATE = float(1 << 20)
# Typed bytes are acknowledged in steps, and this long after the last one: never in the way of an echo.
TOOK_STEP, TOOK_AFTER_S = 32 * 1024, 0.1
LOOK_S, BUSY_LOOK_S = 1.0, 0.05
# So long what is done by the clock waits for keys and output.
PUT_OFF_S = 0.02
# After SIGHUP, before SIGKILL.
GRACE_S = 1.0
# How long output is awaited after the program's end: another program may keep the terminal open.
DRAIN_S = 0.3
# A shell that is over can be asked for its last output and its exit status for so long.
KEPT_AFTER_END_S = 60.0
FIRST_VIEWER_S = 30.0
MAX_RING = 64 << 20
# A viewer that has taken nothing for so long does not keep up.
IDLE_S = 1.0
MAX_VIEWERS = 32
MAX_CLIENTS = 256
ALL = select.POLLIN | select.POLLHUP | select.POLLERR


class Holder:
    def __init__(
        self, listener: socket.socket, program: Program, request: Message, record: str, recorder: Recorder
    ) -> None:
        new = request["new"]
        self.keep_s = float(new.get("keep_s") or 0)
        self.record, self.recorder = record, recorder
        self.recording = recorder.state
        self.ring = Ring(min(MAX_RING, int(new.get("ring_bytes") or DEFAULT_BYTES)))
        self.listener = listener
        self.viewers: List[Viewer] = []
        self.taken: Dict[str, int] = {}
        self.over = False
        self.end_frame = b""
        self.reason = ""
        self.ended_at = self.exited_at = self.closing_at = self.resume_at = 0.0
        self.status: int | None = None
        self.alone_since = time.monotonic()
        self.had_viewer = False
        self.handlers: Dict[int, Callable[[], None]] = {}
        self.interest: Dict[int, int] = {}
        self.poll = select.poll()
        self.woken, woken_write = os.pipe()
        for fd in (self.woken, woken_write):
            os.set_blocking(fd, False)
        wake_on_signals(woken_write)
        self.terminal = Terminal(program, size_of(request))
        listener.setblocking(False)
        self.attend(listener.fileno(), self.accept)
        self.attend(self.terminal.master, self.on_terminal)
        self.attend(self.woken, self.on_child)
        self.next_look_at = 0.0

    # The loop

    def serve(self) -> None:
        now, handlers = time.monotonic(), self.handlers
        while not self.over:
            due_at = min(self.next_look_at, self.recorder.due_at)
            ready = self.poll.poll(max(0.0, due_at - now) * 1000 + 1)
            for fd, _ in ready:
                if fd in handlers:
                    handlers[fd]()
            now = time.monotonic()
            if ready and now < due_at + PUT_OFF_S:
                continue  # perhaps a key was typed, and its echo comes in a moment
            if now >= self.next_look_at:
                self.look(now)
            if now >= self.recorder.due_at:
                self.recorder.flush()
        for viewer in self.viewers:
            viewer.close()
        unlink(self.record)

    def attend(self, fd: int, handler: Callable[[], None] | None, events: int = select.POLLIN) -> None:
        """Call `handler` at these events of the descriptor; None: forget it."""
        if handler is None:
            if self.handlers.pop(fd, None) is not None and self.interest.pop(fd):
                self.poll.unregister(fd)
            return
        self.handlers[fd] = handler
        before = self.interest.get(fd, 0)
        if events != before:
            self.interest[fd] = events
            if not events:
                self.poll.unregister(fd)
            else:
                self.poll.register(fd, events)

    # Output

    def on_terminal(self) -> None:
        if self.terminal.unwritten:
            self.terminal.write_rest()
            self.regulate()
        data = self.terminal.read()
        if data:
            self.show(data)
        elif data is None:
            self.finish()

    def show(self, data: bytes) -> None:
        keeps_up, end = False, self.ring.end
        for viewer in self.viewers:
            if viewer.at == end:
                viewer.show(data)
                keeps_up = keeps_up or not viewer.unsent
        self.ring.append(data)
        for viewer in list(self.viewers):
            if viewer.unsent or not viewer.open:
                self.follow(viewer)
        self.recorder.append(data)
        if not keeps_up:
            self.slow_down(len(data))

    def slow_down(self, size: int) -> None:
        """If nobody takes the output, let the program print at a rate."""
        now = time.monotonic()
        if all(now - viewer.moved_at > IDLE_S for viewer in self.viewers):
            self.resume_at = max(now, self.resume_at) + size / UNATTENDED_RATE
            self.regulate()

    def regulate(self) -> None:
        """Listen to the terminal for what may be read and written now."""
        if self.end_frame:
            return
        now = time.monotonic()
        held = any(self.holds_up(viewer, now) for viewer in self.viewers)
        waits = held or self.resume_at > now + BUSY_LOOK_S
        if waits and (self.keep_s or not held):
            self.next_look_at = min(self.next_look_at, now + BUSY_LOOK_S)
        events = (0 if waits else select.POLLIN) | (select.POLLOUT if self.terminal.unwritten else 0)
        self.attend(self.terminal.master, self.on_terminal, events)
        is_full = len(self.terminal.unwritten) > MAX_TYPED
        for viewer in self.viewers:
            self.attend(viewer.fd_in, self.handlers[viewer.fd_in], 0 if is_full else select.POLLIN)

    def holds_up(self, viewer: Viewer, now: float) -> bool:
        """Whether the program has to wait for this viewer."""
        if not viewer.types or not viewer.is_behind(self.ring, BEHIND_BYTES):
            return False
        return not self.keep_s or now - viewer.moved_at < SILENT_S

    def follow(self, viewer: Viewer) -> None:
        """Send what is due to a viewer, and go on when its connection takes more."""
        viewer.catch_up(self.ring)
        if not viewer.open:
            self.leave(viewer)
            return
        if viewer.unsent:
            self.attend(viewer.fd_out, lambda: self.follow(viewer), select.POLLOUT)
        else:
            self.attend(viewer.fd_out, None)
        self.regulate()

    # Viewers

    def accept(self) -> None:
        try:
            control, _ = self.listener.accept()
        except OSError:
            return
        own = struct.calcsize("3i")
        _, uid, _ = struct.unpack("3i", control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, own))
        if uid != os.getuid() or len(self.viewers) >= MAX_VIEWERS:
            control.close()
            return
        control.setblocking(False)
        self.attend(control.fileno(), lambda: self.greet(control))

    def greet(self, control: socket.socket) -> None:
        """A process has attached: it gives its request and the two descriptors of its SSH channel."""
        self.attend(control.fileno(), None)
        fds: List[int] = []
        try:
            fds, request = receive(control)
            viewer = Viewer(control, fds, request)
        except (OSError, WireError, ValueError):
            for fd in fds:
                os.close(fd)
            control.close()
            return
        self.attach(viewer, request)

    def attach(self, viewer: Viewer, request: Message) -> None:
        wanted = request.get("from")
        place, is_lost = self.ring.place(wanted if type(wanted) is int and wanted >= 0 else None)
        viewer.at = place
        if viewer.types and not self.end_frame:
            self.resize(*size_of(request))
        answer: Message = {"ok": True, "v": VERSION, "at": place, "end": self.ring.end, "lost": is_lost}
        answer["taken"] = self.taken.setdefault(viewer.client, 0)
        answer["size"] = list(self.terminal.size)
        answer["recording"] = self.recording
        answer["modes"] = self.ring.modes.as_sequences().decode("latin-1") if is_lost else ""
        viewer.tell(json_line(answer))
        self.viewers.append(viewer)
        self.had_viewer = True
        self.forget_clients()
        self.attend(viewer.fd_in, functools.partial(self.hear, viewer))
        viewer.end = self.end_frame
        self.follow(viewer)
        if is_lost and self.ring.modes.is_alternate and not self.end_frame:
            self.terminal.draw_again()
        self.tell_viewers()

    def forget_clients(self) -> None:
        """Keep the counts of the clients that were here last."""
        here = {viewer.client for viewer in self.viewers}
        for client in list(self.taken)[: max(0, len(self.taken) - MAX_CLIENTS)]:
            if client not in here:
                del self.taken[client]

    def hear(self, viewer: Viewer) -> None:
        try:
            data = viewer.read()
            if self.type_at_once(viewer, data):
                return
            for kind, number, payload in viewer.frames.feed(data):
                if kind == IN:
                    self.type(viewer, number, payload)
                else:
                    self.obey(viewer, kind, number, payload)
        except (OSError, WireError):
            self.leave(viewer)

    def type_at_once(self, viewer: Viewer, data: bytes) -> bool:
        """Type what has arrived, if it is one whole frame of keys, and nothing is before it. Each step here delays an
        echo. False, and nothing is done: it is to be read as everything else is."""
        size = len(data) - HEAD.size
        if size <= 0 or viewer.frames.rest or self.terminal.unwritten or self.end_frame or not viewer.types:
            return False
        kind, length, number = HEAD.unpack_from(data)
        if kind != IN or length != size or number != self.taken.get(viewer.client, 0):
            return False
        if not self.terminal.write(data[HEAD.size :]):
            self.regulate()
        self.count_typed(viewer, number + size, size)
        return True

    def type(self, viewer: Viewer, number: int, keys: bytes) -> None:
        """Type what was not typed yet: a client sends again what it has no acknowledgement for."""
        taken = self.taken.get(viewer.client, 0)
        if number > taken:
            raise WireError("typed bytes are missing: %d were taken, and these begin at %d" % (taken, number))
        keys = keys[taken - number :] if number < taken else keys
        if keys and viewer.types and not self.end_frame and not self.terminal.write(keys):
            self.regulate()
        self.count_typed(viewer, taken + len(keys), len(keys))

    def count_typed(self, viewer: Viewer, taken: int, new: int) -> None:
        self.taken[viewer.client] = taken
        if taken % TOOK_STEP < new and new > 1:
            viewer.tell(frame(TOOK, taken))
        viewer.took_unsent = True
        self.next_look_at = min(self.next_look_at, viewer.heard_at + TOOK_AFTER_S)

    def obey(self, viewer: Viewer, kind: int, number: int, payload: bytes) -> None:
        if kind == SIZE and viewer.types and not self.end_frame:
            self.resize(*in_range(number >> 32, number & 0xFFFFFFFF))
        elif kind == CLOSE:
            self.close(payload.decode("utf-8", "replace")[:200])

    def resize(self, columns: int, rows: int) -> None:
        """The terminal has one size: that of the viewer who typed or came last. All are told."""
        if self.terminal.resize(columns, rows):
            self.recorder.resize(columns, rows)
            for viewer in self.viewers:
                viewer.tell(json_frame(NOTE, {"size": [columns, rows]}))

    def tell_viewers(self) -> None:
        """Tell everybody who is here."""
        here = [{"name": each.name, "types": each.types} for each in self.viewers]
        for viewer in self.viewers:
            viewer.tell(json_frame(NOTE, {"viewers": here}))

    def leave(self, viewer: Viewer) -> None:
        if viewer not in self.viewers:
            return
        self.viewers.remove(viewer)
        for fd in (viewer.fd_in, viewer.fd_out):
            self.attend(fd, None)
        viewer.close()
        self.alone_since = time.monotonic()
        if not self.viewers and not self.keep_s:
            self.close("Its connection ended.")
        self.tell_viewers()
        self.regulate()

    # What is done by the clock

    def look(self, now: float) -> None:
        self.next_look_at = now + LOOK_S
        for viewer in list(self.viewers):
            self.look_at(viewer, now)
        self.look_at_recording()
        if not self.viewers and not self.end_frame:
            patience_s = self.keep_s if self.had_viewer else max(self.keep_s, FIRST_VIEWER_S)
            if now - self.alone_since >= patience_s:
                self.close("Nobody was there for %d minutes." % (patience_s // 60))
        if self.resume_at:
            self.resume_at = 0.0 if self.resume_at <= now + BUSY_LOOK_S else self.resume_at
            self.regulate()
        if self.closing_at:
            self.next_look_at = now + BUSY_LOOK_S
            if now >= self.closing_at + GRACE_S and self.status is None:
                self.terminal.kill_session()
        if self.exited_at and not self.end_frame:
            self.next_look_at = now + BUSY_LOOK_S
            if now >= self.exited_at + DRAIN_S:
                self.finish()
        if self.end_frame:
            self.over = self.is_fetched(now)
            self.next_look_at = now + (LOOK_S if self.keep_s else BUSY_LOOK_S)

    def look_at(self, viewer: Viewer, now: float) -> None:
        if viewer.took_unsent:
            viewer.took_unsent = False
            viewer.tell(frame(TOOK, self.taken.get(viewer.client, 0)))
        if now - viewer.beaten_at >= BEAT_S and not viewer.unsent:
            viewer.beaten_at = now
            viewer.tell(frame(BEAT))
        if viewer.unsent:
            self.follow(viewer)
        patience_s = SILENT_S if self.keep_s else PATIENT_S
        if now - viewer.heard_at > patience_s:
            # If this host was suspended, what came meanwhile still waits unread.
            self.hear(viewer)
        if now - viewer.heard_at > patience_s or not viewer.open:
            self.leave(viewer)

    def look_at_recording(self) -> None:
        """Tell the viewers when output can no longer be recorded, and when it can again."""
        if self.recording != self.recorder.state:
            self.recording = self.recorder.state
            for viewer in self.viewers:
                viewer.tell(json_frame(NOTE, {"recording": self.recording}))

    def is_fetched(self, now: float) -> bool:
        """Whether nobody needs this process any more."""
        if self.keep_s:
            return now - self.ended_at >= KEPT_AFTER_END_S
        return not any(viewer.is_behind(self.ring) for viewer in self.viewers)

    # The end

    def on_child(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self.woken, 512)
        if self.status is None:
            self.status = self.terminal.reap()
            if self.status is not None:
                self.exited_at = time.monotonic()
                self.next_look_at = 0.0

    def close(self, reason: str) -> None:
        """End the shell, for this reason; the first one counts."""
        if not self.closing_at and not self.end_frame:
            self.reason = reason
            self.closing_at = time.monotonic()
            self.next_look_at = 0.0
            self.terminal.hang_up()

    def finish(self) -> None:
        """All output has come, and the program is over or has closed its terminal."""
        if self.end_frame:
            return
        if self.status is None:
            # The terminal is closed; the exit status comes in a moment.
            self.attend(self.terminal.master, None)
            self.status = self.terminal.reap()
            if self.status is None:
                return
        self.attend(self.terminal.master, None)
        self.drain()
        self.terminal.close()
        self.ended_at = time.monotonic()
        self.next_look_at = 0.0
        self.recorder.end(self.status)
        self.end_frame = json_frame(END, end_of(self.status, self.reason))
        for viewer in list(self.viewers):
            viewer.end = self.end_frame
            self.follow(viewer)

    def drain(self) -> None:
        """Take the output that still waits. Another program may print for ever: what fits into the ring is enough."""
        until = self.ring.end + self.ring.size
        while self.ring.end < until:
            data = self.terminal.read()
            if not data:
                return
            self.ring.append(data)
            self.recorder.append(data)
