"""The path of a test mirrors that of a module, or is a named concept of several."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("actors", "cli", "pipeline", "protocol", "transports")

LONGEST_WITHOUT = 200
"""Lines that a module may have without a test file, of its own or of a concept."""

CONCEPTS = {
    "actors": {
        "test_faults": "",
        "test_handlers": "pykka/_inbox",
        "test_typed": "_values",
        "broker/local/test_handlers": "_service",
        "broker/test_broker": "_options table/_joining",
        "broker/table/test_hints": "_selector",
        "broker/table/test_peers": "_peer_index",
        "broker/table/test_zones": "_zone_index",
        "identity/test_answers": "_incoming",
        "identity/test_failure_steps": "",
        "identity/test_floods": "",
        "identity/test_hostile": (
            "_correspondences _outgoing directory/_own_adverts links/_greetings"
        ),
        "identity/directory/test_file": "_saver",
        "identity/links/test_peers": "_handshakes _session",
        "identity/relays/test_clear_relays": "_clear _part _queues",
        "identity/relays/test_exits": "_paths",
        "identity/relays/test_wishes": "",
        "identity/topics/test_network": "_followings _publications _subscriptions",
        "cluster/test_bad_peers": "_greetings _loader _peer_worker",
        "cluster/test_cluster": "_cluster_inspection _cluster_tasks",
        "cluster/test_random_trouble": "",
        "cluster/test_suspended_sessions": "",
        "cluster/test_zones": "_gateways _link_workers _own_zone _peer_table",
        "dispatch/test_bundle_receiver": "_bundle_parts",
        "dispatch/test_bundles": "_bundle_parts _bundle_sender",
        "dispatch/test_lost_bundles": "_bundle_sender",
        "dispatch/test_circuit_producer": "_circuit_consumer",
        "dispatch/test_circuit_table": "_circuit_link",
        "dispatch/test_credited": "_ends",
        "dispatch/test_dispatcher": (
            "_attachments _consumer _copies _core _name_actions _name_state"
        ),
        "dispatch/test_slices": "_name_table _provisioning",
        "dispatch/test_producer": "_sender",
        "dispatch/test_scenarios": "",
        "dispatch/test_topology": "_dispatch_worker _inspection",
        "dispatch/test_unread": "",
        "eventlog/recording/test_recorder": "_accounts _messages _requests",
        "eventlog/recording/test_recorder_losses": "_flow_sampler _flows",
        "eventlog/storage/test_crashes": "_folder _writer",
        "eventlog/storage/test_failing_disk": "_dictionary _segments",
        "eventlog/storage/test_writer": "_files _output",
        "eventlog/test_node": "",
        "monitoring/test_monitor": (
            "_broker_metrics _dispatch_metrics _metrics _node_metrics _process _service_metrics "
            "_identity_metrics"
        ),
        "pipes/test_channel": "_channel_peer",
        "pipes/test_lost_and_found": "_receiving _sending",
        "pipes/test_receiver": "_receiving _sending _service",
        "pykka/test_pykka": "_actor _future _inbox",
        "routing/test_router": "_undeliverable",
        "runtime/test_stopping": "_cell _closing _lifecycle _stopping",
        "security/test_clock_jumps": "",
        "services/test_discovery": "_discovery_client",
        "sessions/test_client": "_end _liveness",
        "sessions/test_service": "_end",
        "topology/test_topology": "_running",
        "workers/test_composition": "",
    },
    "cli": {
        "test_broker": "_broker_options",
        "test_cluster_clients": "_cluster",
        "test_config": "_config_file _config_options",
        "test_events": "_event_logs",
        "test_installed_transport": "_listen _reach",
        "test_pipeline": "_pipeline_arguments _pipeline_run _pipeline_session",
        "test_reload_under_load": "_reconfigure",
        "test_routes": "_client",
        "test_samples": "",
        "test_tables": "_columns",
        "test_trace": "_trace_picture",
        "test_usage": "_main",
        "test_zones": "_cluster",
    },
    "pipeline": {
        "ingest/test_crashes": "",
        "ingest/test_ingest": "_compact _lake ../_errors",
        "ingest/test_opening": "_files _lake",
        "ingest/test_packs": "_tables",
        "ingest/test_parquet": "_parts",
        "ingest/test_reading": "_lake",
        "ingest/test_state": "_plan",
        "jobs/test_cluster_audit": "",
        "jobs/test_command": "",
        "jobs/test_rehearsed": "_replay",
        "jobs/test_run": "_reports",
        "replay/test_placing": "_gates _questions _rehearsal _resolver _sides _sums _tables",
        "report/test_collect": "_collect_routes",
        "report/test_plots": "_plots_requests",
        "report/test_render": "_page_routes _sections",
        "sink/test_example": "",
        "sink/test_write": "_writer",
        "source/test_registration": "../pyspark_onward/_source",
        "source/test_stream": "_listing _position",
        "tagindex/test_tagindex": "_build _routes _write",
        "transforms/test_plans": "_latency _paths",
        "transforms/test_random_traffic": "",
        "transforms/test_reports_page": "../_schema",
    },
    "protocol": {
        "batches/test_deliveries": "_progress _receiver",
        "batches/test_epochs": "_progress",
        "broker/test_expected": "_index",
        "broker/test_snapshot": "_snapshot_format _snapshot_writer",
        "dispatch/test_network": "_knowledge _neighbour _neighbours",
        "dispatch/test_frames": "_frame_codec",
        "dispatch/test_network_frames": "",
        "dispatch/test_circuit_end": "_circuit_deliveries _circuit_events",
        "dispatch/test_circuit_frames": "_circuit_codec",
        "dispatch/test_circuits": "_circuit_pair",
        "dispatch/test_deliveries": "_copies _delivery _delivery_limits _delivery_table",
        "dispatch/test_multicast_paths": "",
        "dispatch/test_name_network": "",
        "dispatch/test_name_state": "_name_consumers _name_events _name_messages _name_parts",
        "dispatch/test_semantics": "_semantics_parts _semantics_text",
        "eventlog/test_recover": "_scan",
        "eventlog/test_segment": "_header _records",
        "identity/test_directory": "_directory_entries",
        "identity/test_failure_steps": "",
        "identity/test_requests": "_request_codec",
        "identity/test_events": "_topic_records",
        "identity/test_topic_network": "",
        "identity/test_routing_table": "_routes",
        "identity/test_usual_shapes": "",
        "options/test_check": "_kinds",
        "pipes/test_frames": "_frame_reader",
        "rsocket/test_frames": "_constants",
        "rsocket/test_properties": "",
        "topology/test_read": "_plan _values ../toml/_fields ../toml/_read",
    },
    "transports": {
        "test_conformance": "",
        "test_faults": "",
        "test_registered": "",
        "identity/test_directory": "",
        "identity/test_domains": "",
        "identity/test_memberships": "",
        "identity/test_relays": "",
        "identity/test_wishes": "",
        "admin/test_console": "_console_paths",
        "admin/test_interface": "_api _event_paths _health_paths _operate_paths",
        "admin/test_leaks": "",
        "admin/test_whole": "_part_paths _parts _whole_tables",
        "amqp/test_container": "_auto_links _client_engine",
        "amqp/test_engine": "_proton",
        "amqp/test_links": "_incoming _outgoing",
        "amqp/test_routed_loss": "_routed_in _routed_out",
        "amqp/test_server": "_connection _stream",
        "client/test_client": "_client_requests",
        "client/test_failures": "_pool",
        "client/test_ws": "_dial",
        "client/test_flow": "_calls _elements _handler_stream _pending_response",
        "node/test_links": "_stream_link",
        "node/test_outside": "_gate",
        "node/test_push_back": "_backlog",
        "node/test_stream_dialled": "_stream_link",
        "node/test_tcp": "_arrivals _stream",
        "node/test_udp": "_udp_listener _udp_socket",
        "rsocket/test_authorization": "",
        "rsocket/test_bad_input": "_metadata",
        "rsocket/test_bad_streams": "_exchange",
        "rsocket/test_claims": "",
        "rsocket/test_eventlog": "",
        "rsocket/test_eventlog_destinations": "",
        "rsocket/test_eventlog_traffic": "",
        "rsocket/test_exact_limits": "_gathered _options",
        "rsocket/test_flows_in_trouble": "",
        "rsocket/test_freed": "",
        "rsocket/test_hostile": "",
        "rsocket/test_killed": "",
        "rsocket/test_large_multicast": "_frame_copies",
        "rsocket/test_last_fragment": "_exchange",
        "rsocket/test_mended": "_exchange",
        "rsocket/test_model": "_leg _response_merge",
        "rsocket/test_opened": "_link",
        "rsocket/test_overdraft": "_flow",
        "rsocket/test_peer_session": "_peer_link",
        "rsocket/test_resume": "_resumable_link _resumable_sessions _suspended_transport",
        "rsocket/test_resume_cuts": "",
        "rsocket/test_resume_security": "",
        "rsocket/test_routing_flags": "",
        "rsocket/test_bad_brokers": "",
        "rsocket/test_cluster_sentences": "",
        "rsocket/test_sentences": "",
        "rsocket/test_shares": "_byte_shares _request",
        "rsocket/test_silent": "",
        "rsocket/test_slow_readers": "_flow",
        "rsocket/test_sockets": "_listener _transport",
        "rsocket/test_tally": "_exchange",
        "rsocket/test_tenants": "",
        "rsocket/test_tls": "_listener",
        "rsocket/test_turns": "_flow",
        "rsocket/test_undecided": "_admission _flow",
        "rsocket/test_undecided_sockets": "_admission _flow",
        "rsocket/test_unix": "../streams/_unix_file",
        "rsocket/test_ws": "_listener",
        "rsocket/test_ws_handshake": "../streams/_ws_handshake",
        "streams/test_options": "_endpoint",
        "streams/test_pending": "_acceptor",
        "testing/test_cases": "_delivery _ends _gates _pressure _stage",
        "testing/test_main": "",
        "testing/test_planted": "_delivery _ends _pressure",
        "rsocket/test_zones": "_peer_session",
    },
}
"""Tests that are about several modules, or about a folder from outside, and their modules."""


def modules(folder: str) -> dict[Path, int]:
    """Return the modules of a folder with their lines."""
    return {
        path.with_suffix(""): len(path.read_text().splitlines())
        for path in (ROOT / folder).rglob("*.py")
        if not path.name.startswith("__")
    }


def mirrored(test: Path, known: dict[Path, int]) -> Iterator[Path]:
    """Yield the modules of which a test has the name: `test_node` and `test_node_x` of `_node`."""
    name = test.stem.removeprefix("test_")
    place = ROOT / test.relative_to(ROOT / "tests").parent
    for module in known:
        own = module.name.removeprefix("_")
        if module.parent == place and (name == own or name.startswith(f"{own}_")):
            yield module
    if (place / name).is_dir():
        yield place / name


def concepts(folder: str) -> dict[Path, list[Path]]:
    return {
        ROOT / "tests" / folder / f"{test}.py": [
            ((ROOT / folder / test).parent / name).resolve() for name in names.split()
        ]
        for test, names in CONCEPTS[folder].items()
    }


def test_each_test_mirrors_a_module_or_is_a_concept() -> None:
    for folder in FOLDERS:
        known, named = modules(folder), concepts(folder)
        lost = [
            str(test.relative_to(ROOT))
            for test in (ROOT / "tests" / folder).rglob("test_*.py")
            if test not in named and not any(mirrored(test, known))
        ]
        assert lost == []


def test_each_module_of_some_size_has_a_test_or_is_part_of_a_concept() -> None:
    for folder in FOLDERS:
        known, named = modules(folder), concepts(folder)
        covered = {each for names in named.values() for each in names}
        for test in (ROOT / "tests" / folder).rglob("test_*.py"):
            covered.update(mirrored(test, known))
        lost = [
            str(module.relative_to(ROOT))
            for module, lines in known.items()
            if lines > LONGEST_WITHOUT and module not in covered
        ]
        assert lost == []


def test_the_concepts_are_of_tests_and_modules_that_are_there() -> None:
    for folder in FOLDERS:
        known = modules(folder)
        for test, names in concepts(folder).items():
            assert test.exists(), test
            assert [str(name) for name in names if name not in known] == []
