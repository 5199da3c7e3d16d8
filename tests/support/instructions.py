"""Which test does what the pages beside `docs/operations.md` say to do; or why none does.

`tests/unit/house/test_instructions.py` holds it beside the pages: each sentence that tells somebody to do something is
named here by its first words. Blocks that a test types as they stand are left out.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.support.remedies import Tests

_SINKS = "unit/jobs/test_sinks.py::"
_COPY = f"{_SINKS}test_a_copy_whose_sinks_are_taken_away_publishes_nothing_and_the_original_goes_on"
_REFUSED = f"{_SINKS}test_a_sink_that_stands_still_on_a_refused_message_goes_on_when_the_command_lets_it"
_KAFKA, _PULSAR = "stream/test_kafka_source.py::", "stream/test_pulsar_source.py::"
_MOVED = "stream/test_pulsar_import.py::test_the_commands_of_the_guide_move_over"
_PRIVATE, _TEAMS = "unit/config/test_private.py::", "unit/config/test_teams.py::"
_CLUSTER = "smoke/test_cluster.py::test_a_submitted_job_delivers_in_order_and_ends_well_on_a_signal"
_STATED = "unit/benchmarks/test_cluster.py::test_what_the_page_says_to_state_moves_the_end_that_it_is_said_of"
_REPAIRED = "unit/doctor/test_repaired.py::"
_GUIDE = "soak/test_pulsar_guide.py::test_a_stranger_who_types_the_guide_gets_the_timeout"
_PEOPLE = "It says what people have to see to."
_CHOICE = "It helps to choose; each of the choices has tests of its own."
_ALL = "All tests do so."

INSTRUCTIONS: Mapping[str, Mapping[str, Tests]] = {
    "kafka.md": {
        "Make the two topics": "soak/test_kafka_guide.py::test_a_stranger_who_types_the_guide_gets_the_timeout",
        "Consumers of the topic need nothing": _ALL,
        "so move files away, or delete": "stream/test_sources.py::"
        "test_what_is_forgotten_of_files_that_are_gone_takes_none_again",
        "let a file come there whole, by renaming": "stream/test_sources.py::test_each_file_of_a_folder_is_taken_once",
        "Write `coalesce(": f"{_KAFKA}test_a_row_without_the_due_time_that_the_profile_states_is_refused",
        "Under spark-submit add": "unit/sinks/test_clients.py::"
        "test_a_connector_that_spark_lacks_is_named_as_the_sessions_of_the_project_have_it",
        "say where it begins there": f"{_SINKS}"
        "test_a_sink_that_moves_to_another_cluster_goes_on_where_the_option_of_the_page_says",
        "list it, and start the job again": f"{_SINKS}"
        "test_a_sink_whose_server_is_not_listed_goes_on_in_a_process_that_lists_it",
        "Give it another name in the profile.": f"{_KAFKA}test_a_topic_that_was_made_again_is_another_one",
        "Give it another name, and the `start`": f"{_KAFKA}"
        "test_a_topic_of_which_records_were_deleted_unread_stands_still_until_it_has_another_name",
        "Raise `max.message.bytes`": "stream/test_kafka_sink.py::"
        "test_a_message_as_large_as_the_warehouse_takes_is_published_where_the_topic_takes_it",
        "Or let it go on without": _REFUSED,
        "Take them away before": _COPY,
        "Then the sink stands still (`SinkPlaceGone`)": f"{_SINKS}"
        "test_a_sink_whose_place_is_gone_goes_on_where_the_command_of_the_error_says",
    },
    "pulsar.md": {
        "Make a warehouse": _GUIDE,
        "Consumers need nothing": _ALL,
        "Choose the tick": _CHOICE,
        "Consumers drop duplicates": "stream/test_pulsar_sink.py::"
        "test_a_sink_that_dies_beside_a_publication_loses_nothing",
        "With `policy set --sink-refused reject`": _REFUSED,
        "Take them away before": _COPY,
        "Let producers write the due time": (
            f"{_PULSAR}test_a_message_goes_in_and_out_without_loss",
            "stream/test_pulsar_import.py::test_what_waits_is_taken_and_the_rest_stays",
        ),
        "name sources differently": f"{_PULSAR}test_two_warehouses_follow_one_topic_under_names_of_their_own",
        "Let the warehouse deliver": _MOVED,
        "Consumers go on with Pulsar": _MOVED,
        "Start `delayline run": _MOVED,
        "Look at what would come": _MOVED,
        "Let producers send": _PEOPLE,
        "Bring over what waits": _MOVED,
        "Do so until it takes nothing": "stream/test_pulsar_import.py::test_an_import_that_dies_goes_on",
        "Consumers of the old subscription": _PEOPLE,
        "Then remove it": _PEOPLE,
    },
    "security.md": {
        "Bring the file back": "unit/doctor/test_torn.py::"
        "test_a_broken_file_of_subscriptions_stops_the_stages_until_it_is_brought_back",
        "there set `spark.local.dir`": (_CLUSTER, f"{_PRIVATE}test_what_spark_submit_is_told_of_sockets_wins"),
        "For `spark-submit` look yourself": f"{_PRIVATE}"
        "test_jars_that_are_not_those_of_the_lock_are_printed_by_the_command_of_the_page",
        "`umask 027` keeps others out": f"{_PRIVATE}"
        "test_a_warehouse_that_is_made_with_a_strict_umask_is_closed_to_others",
        "Say `python -P -m`": f"{_PRIVATE}test_what_lies_there_is_not_run_when_somebody_says_what_the_page_says",
        "set `PYTHONSAFEPATH=1`": f"{_PRIVATE}test_what_lies_there_is_not_run_when_somebody_says_what_the_page_says",
        "So do not run the job on a machine": _PEOPLE,
        "install the locks first": f"{_PRIVATE}test_a_package_with_another_sum_than_the_lock_has_is_not_installed",
        "Set at least these": (
            _CLUSTER,
            "smoke/test_cluster.py::test_whoever_does_not_know_the_secret_of_a_cluster_is_not_let_in",
        ),
        "Keep the ports of driver": "It is about a firewall, which tests do not have.",
        "Each team has a user": f"{_TEAMS}test_nobody_reads_or_writes_what_is_of_another_team",
        "A team that gives messages": f"{_TEAMS}"
        "test_a_table_for_another_team_is_read_by_it_and_written_by_its_owner_only",
        "A key for producers needs": "unit/storage/test_s3.py::"
        "test_a_producer_has_the_rights_that_the_page_gives_it_and_needs_no_more",
    },
    "scale.md": {
        "State a larger one": _STATED,
        "State a longer lookahead": (
            _STATED,
            "unit/benchmarks/test_cluster.py::test_more_executors_bear_a_higher_rate_until_something_else_ends",
        ),
        "Choose longer segments": "unit/benchmarks/test_cluster.py::test_longer_segments_are_so_many_fewer_numbers",
    },
    "tables.md": {
        "So register the tables": "A catalog is not part of the project.",
        "Sort by these columns": _ALL,
        "Stop all stages of the earlier version": "stream/test_older.py::"
        "test_what_waits_in_an_old_warehouse_comes_once_and_can_come_again",
        "Consumers, sinks and": "It is a statement.",
        "So cut a large append": _PEOPLE,
        "Rebuild the schedule": "stream/test_corrupt.py::"
        "test_what_rots_is_named_with_its_remedy_and_a_rebuild_brings_it_back",
        "Append the new ones": f"{_REPAIRED}"
        "test_the_rows_of_a_version_that_is_no_append_are_appended_and_the_doctor_is_told",
        "So keep such commits small": _PEOPLE,
        "Consumers and settle do the same": "It is a statement.",
        "So write files with large payloads": "soak/test_large_files.py::"
        "test_a_file_of_the_largest_payloads_is_delivered_in_bounded_memory",
        "Use several Spark processes only": _PEOPLE,
    },
    "metrics.md": {
        "stop ingest and schedule, and run": "stream/test_damaged.py::"
        "test_what_is_damaged_is_made_again_by_the_commands_of_the_doctor",
        "Alert when it is not 0": _PEOPLE,
        "Set `run.metrics_port = 9464`": "unit/service/test_watch.py::"
        "test_metrics_are_served_and_batches_logged_while_somebody_watches",
        "Copy the two files": "unit/config/test_alerts.py::"
        "test_the_example_of_prometheus_reads_the_rules_and_asks_where_a_profile_serves",
        "Choose *Dashboards*": "unit/config/test_dashboard.py::test_grafana_finds_what_it_needs",
    },
    "policies.md": {
        "`delayline policy set` and `policy unset` mend such a line": "unit/client/test_policysetting.py::"
        "test_policies_of_a_topic_that_cannot_be_followed_are_mended_by_one_that_is_set_or_unset",
        "`delayline policy unset ... guard": "stream/test_guard.py::"
        "test_a_guard_that_fails_holds_what_it_guards_until_it_does_not",
    },
    "guide.md": {
        "Consumers read": "It is a statement.",
        "Each commit costs": _CHOICE,
        "Set the option `skipChangeCommits`": "smoke/test_wheel.py::test_the_guide_of_the_readme_works_word_for_word",
        "So register one for letters": "spark/maintenance/test_open.py::"
        "test_what_is_open_stays_its_neighbours_go_and_it_goes_when_it_is_settled",
        "If a replay was killed": "stream/test_replay_again.py::"
        "test_rows_that_entered_before_the_kill_belong_to_their_instant",
        "Then name the master": _CLUSTER,
        "Let a supervisor do that": "smoke/test_cluster.py::"
        "test_a_driver_that_is_killed_is_submitted_again_and_delivers_exactly_once",
        "Start each stage in one process only": "unit/jobs/test_cli_stages.py::"
        "test_a_warehouse_in_use_is_refused_before_spark_starts",
        "State the rate": "unit/config/test_sizing.py::test_a_reason_has_the_figure_that_decided",
        "In a profile state only": "unit/config/test_conf.py::test_what_the_guide_says_to_state_is_not_chosen",
    },
    "client.md": {
        "So use `send_async`": _CHOICE,
        "Give the producer a name": "unit/client/test_producer.py::test_a_producer_with_a_name_sends_no_number_twice",
        "Divide a topic before": "unit/client/test_topics.py::"
        "test_a_topic_that_is_divided_gives_its_subscriptions_to_the_partitions",
        "To have more partitions": "unit/client/test_topics.py::"
        "test_a_topic_has_the_partitions_that_it_was_given_and_may_get_more",
        "subscribe again": "unit/client/test_consuming_ends.py::"
        "test_a_consumer_that_gets_nothing_any_more_does_not_come_back",
        "Make processes by `spawn`": "soak/test_programs.py::"
        "test_programs_end_in_time_whatever_they_do_and_nothing_is_lost",
        "Where there are more, let a sink": _CHOICE,
    },
}
"""By the page, and the first words of the sentence."""
