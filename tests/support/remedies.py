"""Which test follows which remedy of `docs/operations.md`; or why none does.

`tests/unit/house/test_remedies.py` holds it beside the page: each word, row and sentence with a remedy is named here.
A remedy that has several ways has several tests. What is not the name of a test is a reason.
"""

from __future__ import annotations

from collections.abc import Mapping

Tests = str | tuple[str, ...]
"""Names of tests, each by its file below `tests`; or one reason why there is none."""

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
VACUUM = f"{_COPIES}test_prepared_files_that_a_vacuum_took_are_prepared_again"
_FUTURE = f"{_COPIES}test_a_live_start_after_a_run_in_the_future_is_refused_until_the_clock_is_reset"
_REPAIRED = "unit/doctor/test_repaired.py::"
_MOVED = "unit/doctor/test_moved.py::"
_RECURRING = "unit/doctor/test_recurring.py::"
_PUT_BACK = f"{_MOVED}test_a_checkpoint_that_is_missing_or_of_somebody_else_is_put_back"
_COPIED_AGAIN = f"{_MOVED}test_a_copy_of_which_a_log_was_cut_meanwhile_is_begun_again"
_COLUMNS = (
    f"{_REPAIRED}test_a_table_of_which_somebody_changed_columns_is_restored_to_the_version_before",
    f"{_REPAIRED}test_an_inbox_of_which_somebody_changed_columns_is_restored_and_what_came_since_is_sent_again",
    f"{_REPAIRED}test_a_table_of_which_somebody_changed_columns_and_vacuumed_comes_back_from_a_copy",
)
_CUT = (
    f"{_REPAIRED}test_a_settle_whose_source_was_cut_begins_anew_with_subscriptions_that_are_made_anew",
    f"{_REPAIRED}test_a_settle_whose_source_was_cut_goes_on_when_all_tables_are_restored_from_one_copy",
)
_NAMES = "It says where to look; what is found there has rows of its own. That it fires is tested (test_alerts.py)."
_ROOM = "soak/test_full_disk.py::test_a_disk_that_fills_up_under_the_stages_stops_them_with_one_line"
_STORE = "smoke/test_s3.py::test_a_store_in_which_a_commit_replaces_another_is_refused"
_CLIENT = "unit/client/test_client.py::"
_STAGES = "unit/jobs/test_cli_stages.py::"
_PAGE = "stream/test_operations.py::test_every_command_of_the_page_does_what_it_says"
APPENDED = f"{_REPAIRED}test_the_rows_of_a_version_that_is_no_append_are_appended_and_the_doctor_is_told"
_DAMAGED = "stream/test_damaged.py::test_what_is_damaged_is_made_again_by_the_commands_of_the_doctor"
_IN_TORN = "unit/doctor/test_torn.py::"
_TORN = f"{_IN_TORN}test_a_newest_version_that_a_power_cut_left_empty_is_deleted_and_what_it_held_is_written_again"
_SENT_AGAIN = f"{_REPAIRED}test_a_newest_version_of_the_inbox_that_a_power_cut_left_empty_is_deleted_and_sent_again"
_UNREAD = f"{_COPIES}test_releases_that_dispatch_has_not_read_are_made_again_by_a_rebuild_of_the_schedule"
_PUBLICATIONS = f"{_COPIES}test_publications_that_were_set_back_are_written_again_by_a_rebuild"
FEATURES = "spark/doctor/test_features.py::test_what_was_switched_on_goes_by_the_commands_of_the_doctor"
COLUMN = "stream/test_foreign_commits.py::test_a_producer_adds_a_column_and_everybody_goes_on"
_RESTORED = "unit/doctor/test_restored.py::"
_VACUUMED = f"{_RESTORED}test_a_table_that_was_restored_and_vacuumed_goes_on_from_a_copy_of_all"
_TAKEN_BACK = f"{_RESTORED}test_a_start_refuses_a_table_that_was_restored_until_that_is_taken_back"

TRIED: Mapping[str, Tests] = {
    "batch_differs": _ELSEWHERE,
    "calendar_refused": "unit/client/test_calendars.py::test_rows_that_are_no_days_are_listed_and_the_others_count",
    "checkpoint_behind": _BEHIND,
    "checkpoint_missing": _HEALED,
    "clock_ahead": _FUTURE,
    "column_added": COLUMN,
    "column_changed": _COLUMNS,
    "column_missing": _COLUMNS,
    "command_not_followed": f"{_IN_TORN}test_a_command_that_nobody_can_follow_is_given_again_by_the_command",
    "command_of_what_comes": _HEALED,
    "cursor_torn": _HEALED,
    "dead_letters_gone": "unit/settle/test_letters.py::"
    "test_letters_of_a_batch_that_are_gone_are_found_and_appended_once_more_with_its_number",
    "disk_filling": "unit/doctor/test_doctor.py::test_a_disk_with_little_room_is_told_until_there_is_room",
    "disk_full": ("unit/doctor/test_doctor.py::test_a_disk_with_little_room_is_told_until_there_is_room", _ROOM),
    "entry_below": _HEALED,
    "entry_missing": _HEALED,
    "entry_torn": _HEALED,
    "feature_unknown": FEATURES,
    "expires_closed": "unit/doctor/test_doctor.py::test_what_expires_while_its_subscription_is_closed_is_told",
    "file_changed": _HEALED,
    "file_missing": _HEALED,
    "foreign_owner": (_LOST, _PUT_BACK),
    "guard_fails": "stream/test_guard.py::test_a_guard_that_fails_holds_what_it_guards_until_it_does_not",
    "held_twice": f"{_AGAIN}test_what_is_held_twice_is_found_and_comes_once_when_one_row_is_deleted",
    "not_a_message": _HEALED,
    "not_accepted": f"{_REPAIRED}test_messages_that_were_restored_alone_are_accepted_again_at_their_positions",
    "not_an_append": APPENDED,
    "not_checked": _TORN,
    "not_delivered": _DAMAGED,
    "not_released": (_DAMAGED, _HEALED),
    "not_taken": f"{_REPAIRED}test_rows_that_ingest_passed_over_are_sent_again_and_the_doctor_is_told",
    "note_torn": _DAMAGED,
    "noted_by_others": "unit/moving/test_places.py::test_a_number_of_somebody_else_does_not_move_an_import",
    "offsets_torn": _DAMAGED,
    "other_zone_rules": f"{_RECURRING}test_other_rules_of_zones_are_found_until_all_have_one_release",
    "passed_over": f"{_AGAIN}test_what_settle_passed_over_is_found_and_comes_again_after_a_seek",
    "policy_refused": (_HEALED, f"{_RECURRING}test_a_window_that_is_not_followed_is_found_until_it_is_set"),
    "prepared_gone": VACUUM,
    "prepared_lost": _NOTES,
    "property_unset": (
        _HEALED,
        "spark/doctor/test_features.py::test_a_property_that_is_not_set_is_set_by_the_statement_of_the_doctor",
    ),
    "released_twice": f"{_AGAIN}test_a_retry_that_was_put_into_the_index_twice_is_found",
    "retry_gone": f"{_AGAIN}test_a_retry_that_is_in_no_table_is_found_and_comes_again_after_a_seek",
    "schedule_refused": f"{_RECURRING}test_a_schedule_that_is_not_followed_is_found_until_it_is_set_right",
    "schedules_behind": (
        f"{_RECURRING}test_a_change_that_nobody_follows_is_found_until_the_stages_start",
        f"{_RECURRING}test_what_is_planned_to_less_than_now_is_found_until_the_stages_start",
    ),
    "settle_ahead": "unit/settle/test_set_back.py::"
    "test_a_table_that_was_restored_alone_is_refused_until_all_are_restored",
    "settle_behind": f"{_REPAIRED}test_a_settle_that_was_behind_takes_in_what_was_said_when_the_stages_start",
    "source_cut": (_DAMAGED, _HEALED, *_CUT),
    "source_gone": _HEALED,
    "source_stands_still": "unit/sources/test_loop.py::"
    "test_a_source_that_stands_still_goes_on_by_itself_when_what_it_follows_is_repaired",
    "table_behind": (_SET_BACK, _UNREAD),
    "table_missing": (
        _HEALED,
        "unit/doctor/test_remedies.py::test_a_new_warehouse_that_lacks_a_table_gets_it_by_the_command_of_the_doctor",
    ),
    "table_restored": (_TAKEN_BACK, _VACUUMED),
    "table_unreadable": _HEALED,
    "two_lines": _HEALED,
    "AlreadySubscribed": f"{_CLIENT}test_a_subscription_is_registered_once",
    "BatchDiffers": _ELSEWHERE,
    "BrokerRefused": (
        "stream/test_pulsar_import.py::test_an_import_that_dies_goes_on",
        "stream/test_pulsar_import.py::test_a_subscription_that_does_not_wait_or_is_not_there_is_refused",
    ),
    "BrokenVersion": (_TORN, _SENT_AGAIN, _SET_BACK, _UNREAD, _PUBLICATIONS),
    "CheckpointBehind": _BEHIND,
    "ClockAhead": _FUTURE,
    "ClockJumped": "unit/service/test_steadyclock.py::test_a_clock_that_is_set_at_once_is_an_error",
    "ClientError": "unit/client/test_producer.py::"
    "test_what_the_store_does_not_take_in_time_fails_and_what_comes_later_is_sent",
    "ColumnGone": _COLUMNS[1],
    "ColumnsChanged": COLUMN,
    "CursorUnreadable": _HEALED,
    "DoesNotAcknowledge": "unit/jobs/test_consuming.py::test_a_subscription_that_does_not_acknowledge_is_not_consumed",
    "ExtraMissing": "unit/house/test_extras.py::"
    "test_a_command_goes_on_when_what_it_lacks_is_installed_and_the_demo_says_it_first",
    "FolderTaken": f"{_STAGES}test_the_demo_writes_into_no_folder_that_holds_something",
    "ForeignOwner": (_LOST, _PUT_BACK),
    "InboxColumn": ("stream/test_foreign_commits.py::test_a_column_of_another_type_is_named_and_restored", _COLUMNS[1]),
    "NoSourceConnector": "unit/sinks/test_clients.py::"
    "test_a_connector_that_spark_lacks_is_named_as_the_sessions_of_the_project_have_it",
    "NoWarehouse": _MADE,
    "NoBrokerClient": "unit/sinks/test_clients.py::"
    "test_a_client_that_is_not_installed_is_named_as_the_project_asks_for_it",
    "NoConditionalPuts": _STORE,
    "NoConnector": (
        "spark/storage/test_files.py::test_a_session_without_the_connector_for_s3_says_what_is_missing",
        _STORE,
    ),
    "NoFileSystem": f"{_STAGES}test_a_command_without_spark_asks_for_a_folder_that_it_reaches",
    "NoJava": "unit/jobs/test_cli.py::test_a_missing_or_old_java_is_one_clear_line",
    "NotedAhead": "unit/client/test_deadletters.py::"
    "test_letters_are_put_back_once_each_after_somebody_has_noted_the_right_number",
    "NotedByOthers": "unit/moving/test_places.py::test_a_number_of_somebody_else_does_not_move_an_import",
    "OtherRules": f"{_REPAIRED}test_lost_messages_of_a_window_are_accepted_again_only_by_their_rules_of_zones",
    "OutputFailed": "unit/jobs/test_surroundings.py::test_what_a_full_disk_did_not_take_is_printed_when_there_is_room",
    "PreparedFileGone": VACUUM,
    "SinkPlaceGone": "unit/jobs/test_sinks.py::"
    "test_a_sink_whose_place_is_gone_goes_on_where_the_command_of_the_error_says",
    "SourceAway": (
        "stream/test_kafka_source.py::test_a_source_goes_on_by_itself_when_its_broker_is_back",
        "stream/test_kafka_source.py::test_a_broker_that_is_not_there_refuses_the_start_until_the_address_is_right",
    ),
    "SourceBehind": "unit/settle/test_set_back.py::"
    "test_what_a_stage_reads_was_restored_alone_and_it_is_refused_until_all_is_restored",
    "SourcePlaceGone": (
        "stream/test_sources.py::test_a_table_that_was_made_again_or_set_back_stands_still",
        "stream/test_sources.py::test_files_are_not_taken_again_when_what_says_so_is_gone",
    ),
    "SourceBusy": "unit/service/test_clone.py::test_a_source_whose_stages_commit_between_all_looks_is_refused",
    "SourceIncomplete": "unit/service/test_clone.py::test_a_source_that_lacks_a_file_is_refused",
    "SourceReplaced": _DAMAGED,
    "StageRunning": "unit/jobs/test_cli_stages.py::test_a_warehouse_in_use_is_refused_before_spark_starts",
    "StillConflicting": f"{_CLIENT}test_a_race_that_is_always_lost_ends_with_an_error",
    "StorageFailed": (
        _ROOM,
        "unit/storage/test_s3.py::test_what_the_line_about_a_store_names_is_set_and_the_command_works",
    ),
    "StoreRefused": _STORE,
    "StrangeJar": "unit/config/test_jars.py::test_a_jar_with_another_sum_and_one_that_nobody_asked_for_are_refused",
    "TableBehind": (_SET_BACK, _UNREAD),
    "TableRestored": (_TAKEN_BACK, _VACUUMED),
    "UnknownTableFeature": FEATURES,
    "WrongVersion": "unit/config/test_sparkversion.py::"
    "test_an_arrow_with_which_the_schedule_would_fail_later_is_refused_at_once",
    "VersionGone": "unit/jobs/test_receive_anew.py::"
    "test_receive_that_was_away_for_too_long_begins_anew_as_the_page_says",
}
"""A test plants the fault, and does what the page says."""

_REPORTED = "It is reported, and nothing else is to be done."
_NOTHING = "Nothing is to be done in the warehouse."
_ANOTHER = "Nothing was written, and a value that is allowed is what all other tests give."
_TELL = "Somebody is told: rows of `deliveries` are never taken back."
UNTRIED: Mapping[str, str] = {
    **dict.fromkeys(("command_of_nothing", "undo_of_nothing", "rejected", "source_behind"), _NOTHING),
    **dict.fromkeys(("cancelled_and_delivered", "delivered_and_left_out", "left_out_without_command"), _REPORTED),
    **dict.fromkeys(("left_out_without_newer", "replaced_by_nothing", "ContractBroken", "CheckFailed"), _REPORTED),
    **dict.fromkeys(("delivered_twice", "taken_twice"), _TELL),
    "early": "Somebody looks at the clocks of machines; what came early came.",
    **dict.fromkeys(("BadInput", "BadSetting", "BadValue"), _ANOTHER),
    "CatalogManaged": "Only a catalog gives a table back, and tests have none.",
    "MemoryEnded": "It would end other tests, too. A start after such a death is that of any other process that died.",
    "NoSession": "The machine lacks memory or a way to Maven Central, which no test can give back; of Java see NoJava.",
    "StageFailed": "Whatever else ends a stage: the doctor has words for it, and a start is as after any other death.",
}
"""Why no test follows the remedy of a word or an error."""

ITSELF = "It goes on by itself."
_WORKERS = "soak/test_killed_workers.py::test_killed_workers_are_replaced"
ROWS: Mapping[str, Tests] = {
    "`DelaylineAway`": _NAMES,
    "`DelaylineStageDown`": _NAMES,
    "`DelaylineStageStandsStill`": _NAMES,
    "`DelaylineOverdue`": _NAMES,
    "`DelaylineBehind`": _NAMES,
    "`DelaylineLate`": _NAMES,
    "`DelaylineSubscriptionLate`": _NAMES,
    "`DelaylineExpiring`": _NAMES,
    "`DelaylineSourceStandsStill`": _NAMES,
    "`DelaylineSinkLate`": _NAMES,
    "`DelaylineOutstanding`": _NAMES,
    "`DelaylineRowsLost`": "stream/test_damaged.py::test_what_is_damaged_is_made_again_by_the_commands_of_the_doctor",
    "`DelaylineRejected`": _NAMES,
    "`DelaylineRefused`": _NAMES,
    "`DelaylineLeftOut`": _NAMES,
    "`DelaylineDeadLetters`": _NAMES,
    "`DelaylineNotCounted`": _NAMES,
    "jobs (`run`, or a stage under spark-submit)": "soak/test_s3.py::"
    "test_of_two_jobs_on_one_bucket_one_is_refused_and_nothing_comes_twice",
    "rounds of maintenance": ITSELF,
    "processes of one sink, while a job is replaced": "unit/sinks/test_two_at_once.py::"
    "test_what_an_earlier_process_notes_late_changes_no_turn",
    "runs of `delayline import` for one topic": "unit/moving/test_places.py::test_of_two_imports_at_once_one_commits",
    "a rebuild beside a job": "Nothing keeps it out there, as the page says; on a disk a lock does.",
    "`the disk of W is full`, `the disk is full`, `W is read-only`": (
        _ROOM,
        "soak/test_full_disk.py::test_a_disk_that_is_read_only_is_refused_with_one_line",
    ),
    "`W: Permission denied`, `W: Not a directory`, `W: No such file or directory`": "unit/jobs/test_failures.py::"
    "test_a_folder_that_cannot_be_made_is_named_with_the_reason_and_another_one_is_made",
    "`Python worker exited unexpectedly`": (
        _WORKERS,
        "stream/test_workers.py::test_a_worker_that_is_killed_does_not_end_the_query",
    ),
    "`Python worker failed to connect back`": (
        "unit/service/test_restarts.py::test_a_python_that_never_starts_ends_the_stage",
        "unit/service/test_restarts.py::test_starts_are_counted_from_the_last_batch_that_ended",
    ),
}
"""Rows of the page, of other tables than those of the doctor and of the log, that name no class of an error."""

_HOT = "soak/test_hot_copies.py::test_a_copy_of_running_stages_goes_on_and_each_message_comes_once"
_HELD = f"{_MOVED}test_what_is_held_is_shown_and_a_copy_that_was_made_while_it_moved_is_made_again"
_MOVES = f"{_MOVED}test_a_stage_that_runs_while_its_folder_moves_ends_and_goes_on_in_the_new_folder"
_KILLED = "stream/test_kills.py::test_kills_between_all_commits_change_nothing"
_SIGNALS = "soak/test_signals.py::test_a_signal_to_every_process_under_load_is_a_clean_stop"
_CACHE = "unit/jobs/test_startcache.py::test_jars_that_are_gone_are_resolved_again"
_OUTAGE = "unit/service/test_restarts.py::test_a_stage_waits_for_its_store"
_HEAD = "It leads to the words below."
PROSE: Mapping[str, Tests] = {
    "First ask the doctor": _HEAD,
    "Wait for the end of its process": _PAGE,
    "`kill -9` at any moment": _KILLED,
    "Under systemd, write": "It is about systemd, which tests do not have.",
    "Send signals to the Python process": _SIGNALS,
    "Java writes the archive": "soak/test_cli_processes.py::"
    "test_the_third_start_maps_the_classes_that_the_second_one_kept",
    "You may delete the folder at any time": _CACHE,
    "If a checkpoint is lost or damaged": (_LOST, _DAMAGED),
    "Stop the stage first": (_LOST, "stream/test_owner.py::test_a_second_process_is_refused"),
    "For `schedule` stop `ingest`, too": _PAGE,
    "`settle` needs no rebuild": "unit/settle/test_letters.py::"
    "test_the_doctor_counts_no_letters_of_a_batch_whose_checkpoint_is_lost",
    "Delete it when all is well": _SET_BACK,
    "If you are not sure which stage to name": _PAGE,
    "If the clock of the machine was wrong": _FUTURE,
    "Stop the job, copy the folder": _PAGE,
    "Copy the whole folder": (_NOTES, _HEALED),
    "Check the copy before you rely on it": _PAGE,
    "If the job must not stop": (_HOT, _HELD),
    "Rebuild it from its tables": (_HOT, _PAGE),
    "So let less than two minutes pass": _COPIED_AGAIN,
    "Otherwise settle may end with": _COPIED_AGAIN,
    "Then begin the copy again": _HOT,
    "In an object store use the tool": "Tests have no such tool; the order is that of the commands.",
    "Do not copy while `delayline import` runs": "It says what not to do.",
    "Without `_sources` a source": "unit/sources/test_notes.py::test_a_source_of_which_no_note_is_its_own_stands_still",
    "What settle gave up between": "It bounds the time of a copy that goes on by itself.",
    "Keep the broken warehouse": _HEALED,
    "The producers send it again": _HEALED,
    "- What was delivered after the copy": _VACUUMED,
    "- Restore the whole warehouse": _HEALED,
    "If you can restore only one table": "unit/settle/test_set_back.py::"
    "test_a_table_that_was_restored_alone_is_refused_until_all_are_restored",
    "Nor does Delta's `RESTORE TABLE` help": _TAKEN_BACK,
    "So you can move a warehouse": _PAGE,
    "Tell producers and consumers": "They are told by people.",
    "A stage that runs while its folder moves": _MOVES,
    "It is also a command, which you may run": _PAGE,
    "A reader of the versions of `deliveries`": "unit/jobs/test_receive_anew.py::"
    "test_receive_that_was_away_for_too_long_begins_anew_as_the_page_says",
    "If it deletes prepared deliveries": VACUUM,
    "Install the new release": "stream/test_older.py::"
    "test_what_waits_in_an_old_warehouse_comes_once_and_can_come_again",
    "To go back to the old release": "Tests have one release. What is restored is a copy, as under Restore.",
    "So make sure that only one is started": "It says what others have to see to.",
    "If the next start then fails with `BatchDiffers`": _ELSEWHERE,
    "A stage whose request had no answer ends": _OUTAGE,
    "The log names the stage and the reason": _OUTAGE,
    "On HDFS nothing is started again": "Its client waits, and tests have no HDFS.",
    "Use delta-rs": "unit/client/test_deadletters.py::"
    "test_letters_are_put_back_once_each_after_somebody_has_noted_the_right_number",
}
"""Sentences of the page beside its tables that say what to do, by their first words."""
