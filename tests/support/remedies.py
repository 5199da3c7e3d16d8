"""Which test follows the remedy of which fault, by the word of the doctor or the class of the error.

`tests/unit/house/test_remedies.py` holds it beside `docs/operations.md`: whatever is named there is named here, once.
"""

from __future__ import annotations

_HEALED = "unit/doctor/test_remedies.py::"
_HEALED += "test_what_the_doctor_finds_is_gone_when_somebody_does_what_it_says_and_the_stages_go_on"
_MADE = "unit/doctor/test_remedies.py::test_a_folder_that_is_no_warehouse_is_made_one_by_what_the_error_says"
_AGAIN = "unit/doctor/test_again.py::"
_COPIES = "stream/test_copies.py::"
_LOST = "stream/test_rebuild.py::test_stages_that_lost_their_checkpoints_go_on_from_the_tables"
_BEHIND = f"{_COPIES}test_checkpoints_one_batch_behind_their_tables_are_refused_and_rebuilt"
_ELSEWHERE = f"{_COPIES}test_batches_that_end_elsewhere_than_their_tables_say_are_refused_and_rebuilt"
_SET_BACK = f"{_COPIES}test_a_table_that_was_set_back_is_refused_and_rebuilt"
_NOTES = f"{_COPIES}test_notes_of_prepared_parts_that_are_gone_are_refused_and_rebuilt"
_VACUUM = f"{_COPIES}test_prepared_files_that_a_vacuum_took_are_prepared_again"
_FUTURE = f"{_COPIES}test_a_live_start_after_a_run_in_the_future_is_refused_until_the_clock_is_reset"
_REPAIRED = "unit/doctor/test_repaired.py::"
_APPENDED = f"{_REPAIRED}test_the_rows_of_a_version_that_is_no_append_are_appended_and_the_doctor_is_told"
_DAMAGED = "stream/test_damaged.py::test_what_is_damaged_is_made_again_by_the_commands_of_the_doctor"
_TORN = "unit/doctor/test_torn.py::"
_TORN += "test_a_newest_version_that_a_power_cut_left_empty_is_deleted_and_what_it_held_is_written_again"
_FEATURES = "spark/doctor/test_features.py::test_what_was_switched_on_goes_by_the_commands_of_the_doctor"
_COLUMN = "stream/test_foreign_commits.py::test_a_producer_adds_a_column_and_everybody_goes_on"
_RESTORED = "unit/doctor/test_restored.py::"
_RESTORED += "test_a_start_refuses_a_table_that_was_restored_until_that_is_taken_back"

TRIED = {
    "batch_differs": _ELSEWHERE,
    "checkpoint_behind": _BEHIND,
    "checkpoint_missing": _HEALED,
    "clock_ahead": _FUTURE,
    "column_added": _COLUMN,
    "column_changed": f"{_REPAIRED}test_a_table_of_which_somebody_changed_columns_is_restored_to_the_version_before",
    "column_missing": f"{_REPAIRED}test_a_table_of_which_somebody_changed_columns_is_restored_to_the_version_before",
    "command_not_followed": "unit/doctor/test_torn.py::"
    "test_a_command_that_nobody_can_follow_is_given_again_by_the_command",
    "command_of_what_comes": _HEALED,
    "cursor_torn": _HEALED,
    "dead_letters_gone": "unit/settle/test_letters.py::"
    "test_letters_of_a_batch_that_are_gone_are_found_and_appended_once_more_with_its_number",
    "entry_below": _HEALED,
    "entry_missing": _HEALED,
    "entry_torn": _HEALED,
    "feature_unknown": _FEATURES,
    "file_changed": _HEALED,
    "file_missing": _HEALED,
    "foreign_owner": _LOST,
    "guard_fails": "stream/test_guard.py::test_a_guard_that_fails_holds_what_it_guards_until_it_does_not",
    "held_twice": f"{_AGAIN}test_what_is_held_twice_is_found_and_comes_once_when_one_row_is_deleted",
    "not_a_message": _HEALED,
    "not_accepted": f"{_REPAIRED}test_messages_that_were_restored_alone_are_accepted_again_at_their_positions",
    "not_an_append": _APPENDED,
    "not_checked": _TORN,
    "not_delivered": _DAMAGED,
    "not_released": _DAMAGED,
    "not_taken": f"{_REPAIRED}test_rows_that_ingest_passed_over_are_sent_again_and_the_doctor_is_told",
    "note_torn": _DAMAGED,
    "noted_by_others": "unit/moving/test_places.py::test_a_number_of_somebody_else_does_not_move_an_import",
    "offsets_torn": _DAMAGED,
    "passed_over": f"{_AGAIN}test_what_settle_passed_over_is_found_and_comes_again_after_a_seek",
    "policy_refused": _HEALED,
    "prepared_gone": _VACUUM,
    "prepared_lost": _NOTES,
    "property_unset": _HEALED,
    "released_twice": f"{_AGAIN}test_a_retry_that_was_put_into_the_index_twice_is_found",
    "retry_gone": f"{_AGAIN}test_a_retry_that_is_in_no_table_is_found_and_comes_again_after_a_seek",
    "settle_ahead": "unit/settle/test_set_back.py::"
    "test_a_table_that_was_restored_alone_is_refused_until_all_are_restored",
    "settle_behind": f"{_REPAIRED}test_a_settle_that_was_behind_takes_in_what_was_said_when_the_stages_start",
    "source_cut": _DAMAGED,
    "source_gone": _HEALED,
    "source_stands_still": "unit/sources/test_loop.py::"
    "test_a_source_that_stands_still_goes_on_by_itself_when_what_it_follows_is_repaired",
    "table_behind": _SET_BACK,
    "table_missing": _HEALED,
    "table_restored": _RESTORED,
    "table_unreadable": _HEALED,
    "two_lines": _HEALED,
    "BatchDiffers": _ELSEWHERE,
    "BrokenVersion": _TORN,
    "CheckpointBehind": _BEHIND,
    "ClockAhead": _FUTURE,
    "ClockJumped": "unit/service/test_steadyclock.py::test_a_clock_that_is_set_at_once_is_an_error",
    "ColumnsChanged": _COLUMN,
    "CursorUnreadable": _HEALED,
    "ForeignOwner": _LOST,
    "InboxColumn": "stream/test_foreign_commits.py::test_a_column_of_another_type_is_named_and_restored",
    "NoSourceConnector": "unit/sinks/test_clients.py::"
    "test_a_connector_that_spark_lacks_is_named_as_the_sessions_of_the_project_have_it",
    "NoWarehouse": _MADE,
    "NoBrokerClient": "unit/sinks/test_clients.py::"
    "test_a_client_that_is_not_installed_is_named_as_the_project_asks_for_it",
    "NoConditionalPuts": "smoke/test_s3.py::test_a_store_in_which_a_commit_replaces_another_is_refused",
    "NoJava": "unit/jobs/test_cli.py::test_a_missing_or_old_java_is_one_clear_line",
    "NotedAhead": "unit/client/test_deadletters.py::"
    "test_letters_are_put_back_once_each_after_somebody_has_noted_the_right_number",
    "NotedByOthers": "unit/moving/test_places.py::test_a_number_of_somebody_else_does_not_move_an_import",
    "PreparedFileGone": _VACUUM,
    "SinkPlaceGone": "unit/jobs/test_sinks.py::"
    "test_a_sink_whose_place_is_gone_goes_on_where_the_command_of_the_error_says",
    "SourceAway": "stream/test_kafka_source.py::test_a_source_goes_on_by_itself_when_its_broker_is_back",
    "SourceBehind": "unit/settle/test_set_back.py::"
    "test_what_a_stage_reads_was_restored_alone_and_it_is_refused_until_all_is_restored",
    "SourcePlaceGone": "stream/test_sources.py::test_a_table_that_was_made_again_or_set_back_stands_still",
    "SourceReplaced": _DAMAGED,
    "StageRunning": "unit/jobs/test_cli_stages.py::test_a_warehouse_in_use_is_refused_before_spark_starts",
    "TableBehind": _SET_BACK,
    "TableRestored": _RESTORED,
    "UnknownTableFeature": _FEATURES,
    "VersionGone": "unit/jobs/test_receive_anew.py::"
    "test_receive_that_was_away_for_too_long_begins_anew_as_the_page_says",
}
"""A test plants the fault, and does what the page says."""

NOTHING_TO_DO = frozenset(
    {
        *("command_of_nothing", "undo_of_nothing", "rejected", "source_behind"),
        *("cancelled_and_delivered", "delivered_and_left_out", "left_out_without_command"),
        *("delivered_twice", "taken_twice", "early"),
        *("ContractBroken", "CheckFailed"),
    }
)
"""The remedy is nothing, to report it, or to tell somebody."""

OUTSIDE = frozenset(
    {
        *("disk_filling", "disk_full", "AlreadySubscribed", "BadInput", "BadSetting", "BadValue", "BrokerRefused"),
        *("ClientError", "ColumnGone", "DoesNotAcknowledge", "FolderTaken", "MemoryEnded"),
        *("NoConnector", "NoFileSystem", "NoSession"),
        *("StageFailed", "StillConflicting", "StorageFailed"),
        *("OutputFailed", "StoreRefused", "StrangeJar"),
    }
)
"""The remedy is not about a warehouse: another value, another name, more room, a store that answers."""

_ITSELF = "It goes on by itself."
_PROGRAM = "A defect of the program, or of its fault, which the trace names."
_SEEN = "The line says what somebody did; there is nothing to repair in the warehouse."
_SAME = "The table of the doctor has the remedy: its words are above."
_ENDS = "unit/client/test_consuming_ends.py::"
_SINK = "unit/sinks/test_loop.py::"
LINES = {
    "inbox: columns that are not read: ...": _COLUMN,
    "stage ingest is started again: its source has other columns now": _COLUMN,
    "stage S is started again: a Python worker did not start in time": "unit/service/test_restarts.py::"
    "test_a_worker_that_did_not_start_in_time_is_tried_again",
    "the store does not answer, and is asked again: ...": "unit/jobs/test_receive.py::"
    "test_each_delivery_is_printed_once_however_often_the_store_does_not_answer",
    "a turn of the consumers failed; it is tried again": "unit/client/test_consuming_outages.py::"
    "test_messages_that_a_store_does_not_give_at_once_come_all_the_same",
    "stage S has ended, and is started again when the store answers: ...": "unit/service/test_restarts.py::"
    "test_a_stage_waits_for_its_store",
    "inbox: version N (OP) is no append, R rows are not taken in; remedy: ...": _APPENDED,
    "TABLE: STEP failed; the next round tries it again": "spark/maintenance/test_rounds.py::"
    "test_a_step_that_fails_is_told_once_and_the_others_are_done",
    "nothing is deleted: of what was due until N ms, N ledgers are not settled": _SAME,
    "cursors: reading what is open waits for the next round: ...": _SAME,
    "TABLE: rows from ledger N on stay, which only Spark could tell apart": _ITSELF,
    "FOLDER is on a file system without locks (...): start each stage in one process only": "unit/jobs/"
    "test_cli_stages.py::test_a_file_system_without_locks_is_named_once_and_the_start_goes_on",
    "sink of TOPIC/SUBSCRIPTION stands still and tries again: ...": "unit/jobs/test_sinks.py::"
    "test_a_sink_that_stands_still_on_a_refused_message_goes_on_when_the_command_lets_it",
    "the process of the sinks has ended with CODE; it is started again": "unit/sinks/test_apart.py::"
    "test_it_starts_when_there_is_a_sink_and_again_when_it_dies",
    "source NAME stands still and begins again: ...": "unit/sources/test_loop.py::"
    "test_a_source_that_stands_still_goes_on_by_itself_when_what_it_follows_is_repaired",
    "Stopped while it started or ended": _SEEN,
    "files of TABLE are left as they are: the table is not what it was made as": _FEATURES,
    "the guard of T/S fails, and N messages waits: ...": "stream/test_guard.py::"
    "test_a_guard_that_fails_holds_what_it_guards_until_it_does_not",
    "nothing is deleted: settle has yet to put back what dispatch left out until N ms": _ITSELF,
    "TABLE: version N: FILE is left out: ...": "unit/ingest/test_strangers.py::"
    "test_a_file_that_cannot_be_read_is_listed_and_ingest_goes_on",
    "inbox: files of version N were not read": _APPENDED,
    "N deliveries were in no table, or lacked files or notes; they are held": _VACUUM,
    "source NAME: versions N of inbox note places that are not its own": "unit/sources/test_notes.py::"
    "test_a_note_of_somebody_else_does_not_move_a_source",
    "source NAME: version N (OP) is no append, R rows are not taken in": _SEEN,
    "sink of T/S stands still: ...": "unit/sinks/test_apart.py::"
    "test_a_sink_of_which_the_process_dies_stands_alone_and_the_others_go_on",
    "sink of T/S: the broker refuses LEDGER:ENTRY: ...": f"{_SINK}"
    "test_what_a_broker_refuses_for_good_is_listed_and_the_sink_goes_on",
    "the registry could not be read for sinks; it is tried again": _ITSELF,
    "maintenance failed; it is tried again later": "unit/maintenance/test_upkeep.py::"
    "test_maintenance_goes_on_after_a_panic_and_says_so",
    "TABLE: STEP waits for the next round: another commit was in the way": _ITSELF,
    "TABLE: written anew, files have N rows instead of M": _SAME,
    "PATH: version N is left to Spark, which takes seconds": _FEATURES,
    "PATH: texts that are no UTF-8, NULL where none may be, or files that cannot be read; a copy is read": _SEEN,
    "WHAT was not written": _ITSELF,
    "nobody can tell whether a stop was asked for at PATH: ...": _ITSELF,
    "settle ended": "The table of errors has the remedy.",
    "consumer NAME gets nothing any more: ...": f"{_ENDS}test_a_consumer_that_gets_nothing_any_more_does_not_come_back",
    "the consumers of this process end; whoever subscribes again gets new ones": f"{_ENDS}"
    "test_consumers_whose_thread_died_are_told_and_others_get_a_new_one",
    "T/S: what was acknowledged by ids is not said: ...": _ITSELF,
    "consumer_events: append N failed, again in N ms: ...": "unit/client/test_consuming_hardships.py::"
    "test_what_was_appended_though_its_answer_was_lost_is_appended_again_and_counts_once",
    "TABLE: a file is passed over: ...": _SEEN,
    "the listener gets no message for now; the next one is asked for again": _ITSELF,
    "the listener failed at MESSAGE, which comes again if it is not acknowledged": _PROGRAM,
    "a turn of the producers failed": "unit/client/test_producer_panics.py::"
    "test_a_message_that_is_decided_is_told_once_when_another_one_of_its_turn_meets_a_panic",
    "inbox: ...; N messages are tried again, M are not": _ITSELF,
    "looking for new topics failed; it is tried again in N s": _ITSELF,
}
"""Lines of the log that the page has: the test that follows the remedy, or why there is none to follow."""
