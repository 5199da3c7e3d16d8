"""Which test follows the remedy of which fault, by the word of the doctor or the class of the error.

`tests/unit/house/test_remedies.py` holds it beside `docs/operations.md`: whatever is named there is named here, once.
"""

from __future__ import annotations

_HEALED = "unit/doctor/test_remedies.py::test_what_the_doctor_finds_is_gone_when_somebody_does_what_it_says"
_MADE = "unit/doctor/test_remedies.py::test_a_folder_that_is_no_warehouse_is_made_one_by_what_the_error_says"
_AGAIN = "unit/doctor/test_again.py::"
_COPIES = "stream/test_copies.py::"
_LOST = "stream/test_rebuild.py::test_stages_that_lost_their_checkpoints_go_on_from_the_tables"
_BEHIND = f"{_COPIES}test_checkpoints_one_batch_behind_their_tables_are_refused_and_rebuilt"
_ELSEWHERE = f"{_COPIES}test_batches_that_end_elsewhere_than_their_tables_say_are_refused_and_rebuilt"
_SET_BACK = f"{_COPIES}test_a_table_that_was_set_back_is_refused"
_NOTES = f"{_COPIES}test_notes_of_prepared_parts_that_are_gone_are_refused_and_rebuilt"
_VACUUM = f"{_COPIES}test_prepared_files_that_a_vacuum_took_are_prepared_again"
_FUTURE = f"{_COPIES}test_a_live_start_after_a_run_in_the_future_is_refused_until_the_clock_is_reset"
_REPAIRED = "unit/doctor/test_repaired.py::"
_DAMAGED = "stream/test_damaged.py::test_what_is_damaged_is_made_again_by_the_commands_of_the_doctor"
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
    "not_an_append": f"{_REPAIRED}test_the_rows_of_a_version_that_is_no_append_are_appended_and_the_doctor_is_told",
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
    "BrokenVersion": _HEALED,
    "CheckpointBehind": _BEHIND,
    "ClockAhead": _FUTURE,
    "ColumnsChanged": _COLUMN,
    "CursorUnreadable": _HEALED,
    "ForeignOwner": _LOST,
    "InboxColumn": "stream/test_foreign_commits.py::test_a_column_of_another_type_is_named_and_restored",
    "NoWarehouse": _MADE,
    "NotedAhead": "unit/client/test_deadletters.py::"
    "test_letters_are_put_back_once_each_after_somebody_has_noted_the_right_number",
    "NotedByOthers": "unit/moving/test_places.py::test_a_number_of_somebody_else_does_not_move_an_import",
    "PreparedFileGone": _VACUUM,
    "SinkPlaceGone": "unit/jobs/test_sinks.py::"
    "test_a_sink_whose_place_is_gone_goes_on_where_the_command_of_the_error_says",
    "SourceBehind": f"{_COPIES}test_a_source_that_was_set_back_is_refused",
    "SourcePlaceGone": "stream/test_sources.py::test_a_table_that_was_made_again_or_set_back_stands_still",
    "SourceReplaced": _DAMAGED,
    "TableBehind": _SET_BACK,
    "TableRestored": _RESTORED,
    "UnknownTableFeature": _FEATURES,
    "VersionGone": "unit/jobs/test_receive_anew.py::"
    "test_receive_that_was_away_for_too_long_begins_anew_as_the_page_says",
}
"""A test plants the fault, and does what the page says."""

NOTHING_TO_DO = frozenset(
    {
        *("command_not_followed", "command_of_nothing", "undo_of_nothing", "rejected", "source_behind"),
        *("cancelled_and_delivered", "delivered_and_left_out", "left_out_without_command"),
        *("delivered_twice", "taken_twice", "early", "not_checked"),
        *("ContractBroken", "CheckFailed"),
    }
)
"""The remedy is nothing, to report it, or to tell somebody."""

OUTSIDE = frozenset(
    {
        *("disk_filling", "disk_full", "AlreadySubscribed", "BadInput", "BadSetting", "BadValue", "BrokerRefused"),
        *("ClientError", "ClockJumped", "ColumnGone", "DoesNotAcknowledge", "FolderTaken", "MemoryEnded"),
        *("NoBrokerClient", "NoConditionalPuts", "NoConnector", "NoFileSystem", "NoJava", "NoSession"),
        *("NoSourceConnector", "SourceAway", "StageFailed", "StageRunning", "StillConflicting", "StorageFailed"),
        *("OutputFailed", "StoreRefused", "StrangeJar"),
    }
)
"""The remedy is not about a warehouse: another value, another name, more room, a store that answers."""
