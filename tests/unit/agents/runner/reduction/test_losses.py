"""What happens to a group when one of it is lost: a lost reducer is exit 134, all else is an error of the program."""

from __future__ import annotations

import os
import signal
import socket
import time

import pytest

from tests.harness.wait_and_processes import wait_for

ABORTED = -signal.SIGABRT


def going_on(group):
    for rank in range(group.count * group.inside):
        wait_for(
            lambda rank=rank: "goes on" in group.text(f"trainer {rank}"), f"rank {rank} to train", timeout=120
        )
    return group


def test_a_killed_reducer_ends_every_trainer_by_SIGABRT(reduced):
    group = going_on(reduced(3, 2, "reduced_training.py"))
    group.reducers[1].kill()
    assert group.ends() == [ABORTED] * 3
    for rank in range(3):
        assert f"the reducer 127.0.0.1:{group.ports[1]} is lost" in group.text(f"trainer {rank}")


@pytest.mark.slow
def test_the_first_process_of_the_run_ends_by_SIGABRT_and_none_above_it(reduced):
    """A shell, or torchrun, would make an ordinary error of the end of its child."""
    shell = ("sh", "-c", '"$@"; exit 3', "sh")
    group = going_on(reduced(2, 1, "reduced_training.py", wrapped=shell))
    group.reducers[0].kill()
    assert group.ends() == [ABORTED] * 2


def test_a_killed_trainer_is_an_error_of_the_others_and_not_the_whole_job_again(reduced):
    group = going_on(reduced(3, 2, "reduced_training.py"))
    group.trainers[1].kill()
    assert group.ends() == [1, -signal.SIGKILL, 1]
    assert "trainer 1" in group.text("trainer 0")
    assert all(reducer.poll() is None for reducer in group.reducers)


@pytest.mark.slow
def test_a_lost_reducer_or_process_hangs_no_replica_with_several_processes(reduced):
    group = going_on(reduced(2, 2, "reduced_training.py", inside=2))
    group.reducers[1].kill()
    # The others may hear first, by the group of their replica, that a process is gone which had lost it.
    assert group.ends() == [ABORTED] * 4
    group = going_on(reduced(2, 2, "reduced_training.py", inside=2))
    group.trainers[1].kill()  # the second process of the first replica
    ends = group.ends()
    assert ends[1] == -signal.SIGKILL and ends[:1] + ends[2:] == [1, 1, 1]


@pytest.mark.slow
def test_an_exception_of_the_program_stays_its_own(reduced):
    group = reduced(3, 2, "reduced_training.py", "--raises-at", "20")
    assert group.ends() == [1, 1, 1]
    assert "ValueError: an error of the program" in group.text("trainer 1")
    for rank in (0, 2):
        assert "trainer 1" in group.text(f"trainer {rank}")


@pytest.mark.slow
def test_ranks_that_disagree_stop_with_a_sentence(reduced):
    group = reduced(2, 2, "reduced_training.py", "--cuts-differently", "--width", "768")
    assert group.ends() == [1, 1]
    for rank in range(2):
        assert "the trainers disagree: trainer 0 sent bucket" in group.text(f"trainer {rank}")
        assert "All of them must have the same model" in group.text(f"trainer {rank}")


@pytest.mark.slow
def test_an_end_by_os_exit_and_ends_of_forked_children_are_no_loss(reduced):
    group = reduced(2, 2, "reduced_training.py", "--steps", "40", "--forks", "--ends-hard")
    assert group.ends() == [0, 0], group.text("trainer 0")


@pytest.mark.slow
def test_a_reducer_that_is_stopped_serves_until_the_last_trainer_has_left(reduced):
    group = going_on(reduced(2, 1, "reduced_training.py"))
    group.reducers[0].terminate()
    with_more = os.path.getsize(group.outputs["trainer 0"])
    time.sleep(0.5)  # what it would have ended in: nothing to wait for shows that nothing happens
    assert group.reducers[0].poll() is None
    assert os.path.getsize(group.outputs["trainer 0"]) == with_more
    for trainer in group.trainers:
        trainer.terminate()
    assert group.ends() == [-signal.SIGTERM] * 2
    assert group.reducers[0].wait(60) == 128 + signal.SIGTERM


@pytest.mark.slow
def test_strangers_at_the_port_disturb_nobody(reduced):
    group = reduced(2, 1, "reduced_training.py", "--steps", "200")
    said = [b"GET / HTTP/1.1\r\n\r\n", b"TYRS" + bytes(200), os.urandom(4096), b""]
    strangers = []
    for data in said * 8:
        stranger = wait_for(lambda: dial(group.ports[0]), "the port to listen")
        strangers.append(stranger)
        stranger.sendall(data)
    assert group.ends() == [0, 0], group.text("trainer 0")
    assert group.reducers[0].poll() is None
    for stranger in strangers:
        stranger.close()


def dial(port):
    try:
        return socket.create_connection(("127.0.0.1", port), 5)
    except OSError:
        return None
