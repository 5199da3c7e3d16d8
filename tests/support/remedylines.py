"""Which test follows what `docs/operations.md` says to do after a line of the log; or why none does.

It is as in `tests.support.remedies`, of which it is a part.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.support.remedies import APPENDED, COLUMN, FEATURES, ITSELF, VACUUM, Tests

_WAITING = "unit/maintenance/test_waiting.py::"
_PROGRAM = "A defect of the program, or of its fault, which the trace names."
_SEEN = "The line says what somebody did; there is nothing to repair in the warehouse."
_SAME = "The table of the doctor has the remedy: its words are above."
_ENDS = "unit/client/test_consuming_ends.py::"
_TURNS = "unit/client/test_consuming_outages.py::"
_SINK = "unit/sinks/test_loop.py::"
LINES: Mapping[str, Tests] = {
    "inbox: columns that are not read: ...": COLUMN,
    "stage ingest is started again: its source has other columns now": COLUMN,
    "inbox: messages are refused, by reason: N REASON": "unit/ingest/test_refusals.py::"
    "test_what_is_refused_is_said_while_it_happens",
    "stage S is started again: a Python worker did not start in time": "unit/service/test_restarts.py::"
    "test_a_worker_that_did_not_start_in_time_is_tried_again",
    "the store does not answer, and is asked again: ...": "unit/jobs/test_receive.py::"
    "test_each_delivery_is_printed_once_however_often_the_store_does_not_answer",
    "a turn of the consumers failed; it is tried again": (
        "unit/client/test_consuming_outages.py::test_messages_that_a_store_does_not_give_at_once_come_all_the_same",
        "unit/client/test_consuming_outages.py::test_a_file_of_deliveries_that_is_broken_is_brought_back_and_all_come",
    ),
    "stage S has ended, and is started again when the store answers: ...": "unit/service/test_restarts.py::"
    "test_a_stage_waits_for_its_store",
    "inbox: version N (OP) is no append, R rows are not taken in; remedy: ...": APPENDED,
    "TABLE: STEP failed; the next round tries it again": "spark/maintenance/test_rounds.py::"
    "test_a_step_that_fails_is_told_once_and_the_others_are_done",
    "nothing is deleted: of what was due until N ms, N ledgers are not settled": f"{_WAITING}"
    "test_what_is_not_settled_holds_the_mark_until_it_is_repaired",
    "cursors: reading what is open waits for the next round: ...": f"{_WAITING}"
    "test_what_settle_has_not_read_holds_the_rows_until_it_has_started",
    "TABLE: rows from ledger N on stay, which only Spark could tell apart": ITSELF,
    "FOLDER is on a file system without locks (...): start each stage in one process only": "unit/jobs/"
    "test_cli_stages.py::test_a_file_system_without_locks_is_named_once_and_the_start_goes_on",
    "sink of TOPIC/SUBSCRIPTION stands still and tries again: ...": "unit/jobs/test_sinks.py::"
    "test_a_sink_that_stands_still_on_a_refused_message_goes_on_when_the_command_lets_it",
    "the process of the sinks has ended with CODE; it is started again": "unit/sinks/test_apart.py::"
    "test_it_starts_when_there_is_a_sink_and_again_when_it_dies",
    "page /...": "unit/web/test_page.py::test_a_page_that_cannot_be_made_is_said_and_the_next_one_is_made",
    "source NAME stands still and begins again: ...": "unit/sources/test_loop.py::"
    "test_a_source_that_stands_still_goes_on_by_itself_when_what_it_follows_is_repaired",
    "Stopped while it started or ended": _SEEN,
    "files of TABLE are left as they are: the table is not what it was made as": (
        FEATURES,
        f"{_WAITING}test_files_of_a_table_that_somebody_changed_are_merged_again_when_it_is_restored",
    ),
    "the guard of T/S fails, and N messages waits: ...": "stream/test_guard.py::"
    "test_a_guard_that_fails_holds_what_it_guards_until_it_does_not",
    "nothing is deleted: settle has yet to put back what dispatch left out until N ms": ITSELF,
    "TABLE: version N: FILE is left out: ...": "unit/ingest/test_strangers.py::"
    "test_a_file_that_cannot_be_read_is_listed_and_ingest_goes_on",
    "inbox: files of version N were not read": APPENDED,
    "N deliveries were in no table, or lacked files or notes; they are held": VACUUM,
    "source NAME: versions N of inbox note places that are not its own": "unit/sources/test_notes.py::"
    "test_a_note_of_somebody_else_does_not_move_a_source",
    "source NAME: version N (OP) is no append, R rows are not taken in": _SEEN,
    "sink of T/S stands still: ...": "unit/sinks/test_apart.py::"
    "test_a_sink_of_which_the_process_dies_stands_alone_and_the_others_go_on",
    "sink of T/S: the broker refuses LEDGER:ENTRY: ...": f"{_SINK}"
    "test_what_a_broker_refuses_for_good_is_listed_and_the_sink_goes_on",
    "the registry could not be read for sinks; it is tried again": ITSELF,
    "PATH lacks the plan: all is planned anew": "unit/planner/test_planner.py::test_numbers_of_others_are_nothing",
    "a change of schedules waits: ...": "unit/planner/test_standing_still.py::"
    "test_a_change_that_waits_for_ingest_is_said_and_lets_nothing_be_missed",
    "schedule NAME is not followed: ...": "unit/planner/test_planner.py::test_a_row_that_cannot_be_followed_is_listed",
    "maintenance failed; it is tried again later": "unit/maintenance/test_upkeep.py::"
    "test_maintenance_goes_on_after_a_panic_and_says_so",
    "TABLE: STEP waits for the next round: another commit was in the way": ITSELF,
    "TABLE: written anew, files have N rows instead of M": _SAME,
    "PATH: version N is left to Spark, which takes seconds": FEATURES,
    "PATH: texts that are no UTF-8, NULL where none may be, or files that cannot be read; a copy is read": _SEEN,
    "WHAT was not written": ITSELF,
    "nobody can tell whether a stop was asked for at PATH: ...": ITSELF,
    "settle ended": "The table of errors has the remedy.",
    "consumer NAME gets nothing any more: ...": f"{_ENDS}test_a_consumer_that_gets_nothing_any_more_does_not_come_back",
    "the consumers of this process end; whoever subscribes again gets new ones": f"{_ENDS}"
    "test_consumers_whose_thread_died_are_told_and_others_get_a_new_one",
    "T/S: what was acknowledged by ids is not said: ...": ITSELF,
    "consumer_events: append N failed, again in N ms: ...": "unit/client/test_consuming_hardships.py::"
    "test_what_was_appended_though_its_answer_was_lost_is_appended_again_and_counts_once",
    "TABLE: a file is passed over: ...": _SEEN,
    "the listener gets no message for now; the next one is asked for again": ITSELF,
    "the listener failed at MESSAGE, which comes again if it is not acknowledged": _PROGRAM,
    "a turn of the producers failed": "unit/client/test_producer_panics.py::"
    "test_a_message_that_is_decided_is_told_once_when_another_one_of_its_turn_meets_a_panic",
    "inbox: ...; N messages are tried again, M are not": ITSELF,
    "looking for new topics failed; it is tried again in N s": ITSELF,
}
"""Lines of the log that the page has, by the first one of their row."""
