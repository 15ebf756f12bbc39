//! What people read when a scenario file is wrong: one snapshot per case.

use evenkeel_scenario::{Scenario, ScenarioError};

const VALID: &str = r#"schema = 2
name = "case"
title = "A case"
duration_ms = 5000

[network]
rate_mbit = 100

[vms.sender]
core = { vms_per_core = 3 }

[vms.receiver]

[workloads.w]
kind = "strobe"
from = "sender"
to = "receiver"
block_kib = 64
"#;

/// The valid scenario's workload.
const STROBE: &str = "[workloads.w]\nkind = \"strobe\"\nfrom = \"sender\"\nto = \"receiver\"\nblock_kib = 64\n";
/// Another workload beside it.
const PING: &str = "[workloads.ping]\nkind = \"ping\"\nfrom = \"sender\"\nto = \"receiver\"\ninterval_ms = 10\n";

const THREE_TIER: &str = "users = 1\nthink_time_ms = 1\n\
    operations = [{ name = \"page\", weight = 1, request_bytes = 1, response_bytes = 1 }]";

fn errors(text: &str) -> String {
    match Scenario::from_str(text, "case.toml") {
        Ok(_) => "no error".to_owned(),
        Err(error @ ScenarioError::Invalid(_)) => error.to_string(),
        Err(other) => panic!("unexpected kind of error: {other:?}"),
    }
}

/// The valid scenario with a piece replaced.
fn with(from: &str, to: &str) -> String {
    assert!(VALID.contains(from), "{from} is not in the valid scenario");
    errors(&VALID.replace(from, to))
}

/// The valid scenario with a workload of another kind, and these keys in the place of the strobe's.
fn of_kind(kind: &str, keys: &str) -> String {
    errors(&VALID.replace("\"strobe\"", &format!("\"{kind}\"")).replace("block_kib = 64", keys))
}

/// The valid scenario with lines added.
fn plus(lines: &str) -> String {
    errors(&format!("{VALID}\n{lines}"))
}

macro_rules! cases {
    ($($name:ident: $errors:expr;)*) => {
        $(#[test]
        fn $name() {
            insta::assert_snapshot!($errors);
        })*
    };
}

cases! {
    valid: errors(VALID);
    empty_file: errors("");
    not_toml: with("[workloads.w]", "[workloads.w");
    duplicate_key: with("duration_ms = 5000", "duration_ms = 5000\nduration_ms = 6000");
    unknown_key_close_to_one: with("duration_ms = 5000", "duration_ms = 5000\nrepetition = 2");
    unknown_key_far_from_all: plus("[record]\nfrobnicate = true");
    unknown_table: plus("[netwrk]\nrate_mbit = 5");
    unknown_key_in_workload: with("block_kib = 64", "block_kib = 64\nflows = 2");
    unknown_workload: with("\"strobe\"", "\"strobes\"");
    workload_without_kind: with("kind = \"strobe\"\n", "");
    web_application_without_its_four_servers: of_kind("three-tier", THREE_TIER);
    web_application_with_nothing_to_do: of_kind("three-tier", "users = 1\nthink_time_ms = 1\noperations = []");
    workload_lacks_a_key: with("block_kib = 64\n", "");
    no_workload: with(STROBE, "[workloads]\n");
    nine_workloads: plus(&(0..8).map(|n| PING.replace("ping]", &format!("ping-{n}]"))).collect::<String>());
    several_workloads_with_metrics_of_one: plus(&(PING.to_owned()
        + "[report]\ncolumns = [\"blocks\", \"w.blocks\", \"ping.rtt_p50_ms\", \"ping.blocks\", \"x.flows\", \
        \"goodput_mbit\", \"timeouts\"]"));
    a_metric_of_the_run_with_a_workload_before_it: plus(&(PING.to_owned() + "[report]\ncolumns = [\"w.timeouts\"]"));
    one_workload_with_metrics_of_several: plus("[report]\ncolumns = [\"w.blocks\"]");
    a_metric_of_a_workload_that_is_none: plus("[report]\ncolumns = [\"w.block\", \"W.blocks\"]");
    several_workloads_of_which_one_ends:
        errors(&(VALID.replace("block_kib = 64", "block_kib = 64\nrequests = 9") + PING));
    settings_without_effect_on_any_workload: errors(&(VALID.replace("[vms.sender]",
        "[vms.sender]\ntcp.receive_buffer_bytes = 9000").replace(STROBE, &STROBE.replace("strobe", "bulk")
        .replace("block_kib = 64", "")) + PING));
    a_setting_with_effect_on_one_workload: errors(&(VALID.replace("[vms.receiver]",
        "[vms.receiver]\ntcp.receive_buffer_bytes = 9000") + PING));
    number_out_of_bounds: with("rate_mbit = 100", "rate_mbit = 400001\nmtu_bytes = 68");
    number_is_negative: with("duration_ms = 5000", "duration_ms = -1");
    number_is_text: with("rate_mbit = 100", "rate_mbit = \"100\"");
    number_is_not_finite: with("vms_per_core = 3", "vms_per_core = 3, load = nan");
    whole_number_has_a_fraction: with("rate_mbit = 100", "rate_mbit = 99.5");
    unknown_kernel: with("[vms.receiver]", "[vms.receiver]\nkernel = \"6.2\"");
    rto_min_is_another_word: with("[vms.receiver]", "[vms.receiver]\ntcp = { rto_min_us = \"small\" }");
    rto_min_is_too_small: with("[vms.receiver]", "[vms.receiver]\ntcp = { rto_min_us = 200 }");
    bad_name: with("\"case\"", "\"Case 1\"");
    bad_group_name: with("[vms.receiver]", "[vms.Receiver]");
    newer_schema: with("schema = 2", "schema = 3");
    several_at_once: with("duration_ms = 5000", "duration = 5000\nrepetitions = 0\nseed = \"x\"");
    hosts_that_nobody_is_on: plus("[hosts.rack]");
    unknown_hosts: with("[vms.receiver]", "[vms.receiver]\non = \"rack\"");
    a_core_beside_hosts: with("[vms.sender]", "[hosts.rack]\n[vms.sender]\non = \"rack\"");
    quota_without_hosts: with("[vms.receiver]", "[vms.receiver]\nquota = { us = 30000 }\nown_load = { load = 0.6 }");
    quota_with_drawn_slices: with("[vms.receiver]", "[hosts.rack]\nscheduler = { kind = \"slices\" }\n\
        driver_domain = \"shared\"\n[vms.receiver]\non = \"rack\"\nquota = { us = 30000, burst_us = 40000 }");
    neighbours_that_are_none: with("[vms.receiver]", "[hosts.rack]\nneighbours = { load = 0.5 }\n\
        [vms.receiver]\non = \"rack\"");
    mechanisms_of_nobody: plus("[mechanisms]\nreceivers = \"all\"");
    mechanisms_said_twice: with("[vms.receiver]", "[mechanisms]\nreceiver = \"pvtcp\"\n[vms.receiver]\n\
        pvtcp = { mode = \"observe\" }");
    unknown_group: with("to = \"receiver\"", "to = \"reciever\"");
    same_group_on_both_ends: with("to = \"receiver\"", "to = \"sender\"");
    group_without_use: plus("[vms.third]");
    too_many_vms: with("[vms.receiver]", "count = 16384\n[vms.receiver]");
    flows_beyond_memory: errors(
        &VALID.replace("\"strobe\"", "\"poisson\"").replace("block_kib = 64", "load = 0.5\nsizes = 1")
    );
    flows_beyond_memory_in_some_cells: errors(
        &(VALID.replace("\"strobe\"", "\"poisson\"").replace("block_kib = 64", "load = 0.5\nsizes = 1000000")
            + "[[axes]]\nname = \"size\"\nkey = \"workloads.w.sizes\"\nvalues = [1, 3, 4, \"websearch\"]\n")
    );
    too_many_runs: errors(
        &(VALID.replace("title", "repetitions = 1000\ntitle")
            + "[[axes]]\nname = \"delay\"\nkey = \"network.delay_us\"\nvalues = "
            + &format!("{:?}\n", (0..101).collect::<Vec<_>>()))
    );
    pings_beyond_memory: errors(
        &VALID.replace("\"strobe\"", "\"ping\"").replace("block_kib = 64", "interval_ms = 1")
            .replace("duration_ms = 5000", "duration_ms = 3600000").replace("[vms.sender]", "[vms.sender]\ncount = 3")
    );
    two_receivers_of_a_strobe: with("[vms.receiver]", "[vms.receiver]\ncount = 2");
    block_smaller_than_its_senders_need: with("block_kib = 64", "block_kib = 0");
    setting_without_effect_alone_on_a_core: with("vms_per_core = 3", "slice_ms = 10");
    setting_without_effect_in_an_unshaped_port: with("rate_mbit = 100", "rate_mbit = 0\nbuffer_segments = 16");
    setting_without_effect_with_pvtcp_off: with("[vms.receiver]", "[vms.receiver]\npvtcp = { jit_segments = 0 }");
    setting_without_effect_on_the_other_end: with("[vms.receiver]", "[vms.receiver]\n\
        tcp = { send_buffer_bytes = 65536 }");
    setting_without_effect_for_a_ping: errors(
        &VALID.replace("\"strobe\"", "\"ping\"").replace("block_kib = 64", "interval_ms = 10")
            .replace("[vms.receiver]", "[vms.receiver]\ntcp = { era = \"paper\" }")
    );
    setting_without_effect_in_another_topology: with("rate_mbit = 100", "rate_mbit = 100\nspines = 4\n\
        edge_rate_mbit = 1000");
    setting_without_effect_in_another_discipline: with("rate_mbit = 100", "rate_mbit = 100\n\
        queue = { discipline = \"codel\", ecn_threshold_segments = 20, thresholds_bytes = [1] }");
    setting_without_effect_with_own_buffers: with("rate_mbit = 100", "rate_mbit = 100\nbuffer_alpha = 2");
    setting_without_effect_with_shared_buffers: with("rate_mbit = 100", "rate_mbit = 100\nshared_buffer_kib = 512\n\
        buffer_segments = 20");
    setting_without_effect_without_a_hypervisor: with("[vms.receiver]", "[vms.receiver]\nhypervisor = false\n\
        host_delay_us = 5\nport_queue_segments = 5");
    setting_without_effect_on_slow_start: with("[vms.receiver]", "[vms.sender.tcp]\ncongestion_control = \"reno\"\n\
        hystart = false\n\n[vms.receiver]\ntcp.hystart = false");
    setting_without_effect_on_acks_at_once: with("[vms.receiver]", "[vms.receiver]\n\
        tcp = { delayed_ack = \"off\", delayed_ack_max_us = 500, timestamps = false, eifel = true }");
    unknown_topology: with("rate_mbit = 100", "rate_mbit = 100\ntopology = \"leafspine\"");
    more_hosts_than_places: with("rate_mbit = 100", "rate_mbit = 100\ntopology = \"leaf-spine\"\nhosts_per_leaf = 1\n\
        leaves = 1\nspines = 1");
    too_many_places: with("rate_mbit = 100", "rate_mbit = 100\ntopology = \"leaf-spine\"\nhosts_per_leaf = 256\n\
        leaves = 256");
    fat_tree_with_too_few_places: with("rate_mbit = 100", "rate_mbit = 100\ntopology = \"fat-tree\"\n\
        hosts_per_leaf = 1\nleaves = 1\npods = 1\nspines = 1\ncores_per_spine = 1");
    fat_tree_with_too_many_places: with("rate_mbit = 100", "rate_mbit = 100\ntopology = \"fat-tree\"\npods = 64\n\
        leaves = 64\nhosts_per_leaf = 8");
    fat_tree_with_too_many_links: with("rate_mbit = 100", "rate_mbit = 100\ntopology = \"fat-tree\"\npods = 128\n\
        leaves = 8\nspines = 128\ncores_per_spine = 128");
    core_switches_above_one_pod: with("rate_mbit = 100", "rate_mbit = 100\ntopology = \"fat-tree\"\npods = 1");
    pods_of_a_leaf_spine: with("rate_mbit = 100", "rate_mbit = 100\ntopology = \"leaf-spine\"\npods = 4\n\
        cores_per_spine = 2\ncore_rate_mbit = 1000");
    no_pods: with("rate_mbit = 100", "rate_mbit = 100\ntopology = \"fat-tree\"\npods = 0");
    more_vms_than_a_host_takes: with("core = { vms_per_core = 3 }", "on = \"rack\"\ncount = 8193\n[hosts.rack]\n\
        count = 2");
    spines_above_one_leaf: with("rate_mbit = 100", "rate_mbit = 100\ntopology = \"leaf-spine\"\nleaves = 1");
    red_without_thresholds: with("rate_mbit = 100", "rate_mbit = 100\n\
        queue = { discipline = \"red\", red_min_segments = 5 }");
    red_with_both_thresholds: with("rate_mbit = 100", "rate_mbit = 100\n\
        queue = { discipline = \"red\", red_min_segments = 5, ecn_threshold_segments = 5 }");
    red_upside_down: with("rate_mbit = 100", "rate_mbit = 100\n\
        queue = { discipline = \"red\", red_min_segments = 50, red_max_segments = 5 }");
    priority_without_thresholds: with("rate_mbit = 100", "rate_mbit = 100\nqueue = { discipline = \"priority\" }");
    priority_with_falling_thresholds: with("rate_mbit = 100", "rate_mbit = 100\n\
        queue = { discipline = \"priority\", thresholds_bytes = [2000, 1000] }");
    priority_with_a_threshold_of_nothing: with("rate_mbit = 100", "rate_mbit = 100\n\
        queue = { discipline = \"priority\", thresholds_bytes = [0, 1000] }");
    namespace_behind_a_hypervisor: with("[vms.receiver]", "[vms.receiver]\nmachine = \"namespace\"");
    setting_without_effect_in_a_namespace: with("[vms.receiver]", "[vms.receiver]\nhypervisor = false\n\
        machine = \"namespace\"\nkernel = \"6.1\"\nvcpus = 2\nmemory_mib = 512\nhz = 250\n[report]\n\
        columns = [\"receiver_cpu\"]");
    pvtcp_in_a_namespace: with("[vms.receiver]", "[vms.receiver]\nhypervisor = false\nmachine = \"namespace\"\n\
        pvtcp = { mode = \"observe\" }");
    shared_core_without_a_hypervisor: with("core = {", "hypervisor = false\nper_host = 2\ncore = {");
    pvtcp_without_ticks: with("[vms.receiver]", "hz = 0\npvtcp = { mode = \"enforce\" }\n[vms.receiver]");
    dctcp_without_ecn: with("[vms.receiver]", "tcp = { congestion_control = \"dctcp\", ecn = \"off\" }\n\
        [vms.receiver]");
    poisson_in_a_dumbbell: {
        let all_to_all = "kind = \"poisson\"\nfrom = \"sender\"\nload = 0.5\nsizes = \"websearch\"\n";
        let strobe = "kind = \"strobe\"\nfrom = \"sender\"\nto = \"receiver\"\nblock_kib = 64\n";
        let dumbbell = "rate_mbit = 100\ntopology = \"dumbbell\"";
        let one_group = VALID.replace("[vms.receiver]\n", "count = 4");
        errors(&one_group.replace("rate_mbit = 100", dumbbell).replace(strobe, all_to_all))
    };
    poisson_of_unknown_sizes: of_kind("poisson", "load = 0\nsizes = \"web\"");
    poisson_among_one: errors(
        &VALID.replace("[vms.receiver]\n", "").replace("\"strobe\"", "\"poisson\"")
            .replace("to = \"receiver\"\nblock_kib = 64", "load = 0.5\nsizes = 1000")
    );
    columns_of_flows_for_a_strobe: plus("[report]\ncolumns = [\"fct_p99_ms\", \"flows\", \"missed_deadlines\", \
        \"ecn_marks\"]");
    columns_of_another_size: of_kind("poisson", "load = 0.5\nsizes = 1000\n[record]\ntcp_info_period_ms = 10\n\
        [report]\ncolumns = [\"fct_large_p50_ms\", \"fct_small_p50_ms\", \"rto_ms\"]");
    columns_of_connections_for_requests: of_kind("request-response", "[report]\n\
        columns = [\"fct_p50_ms\", \"fct_connected_p50_ms\", \"throughput_connected_p50_mbit\"]");
    unknown_column: plus("[report]\ncolumns = [\"goodput\", \"blocks\", \"blocks\"]");
    empty_column: plus("[report]\ncolumns = [\"rtt_p50_ms\", \"queue_max_segments\", \"rto_runs_1\"]");
    unknown_plot: plus("[[report.plots]]\nkind = \"pie\"\ntitle = \"Pie\"");
    plot_of_an_unknown_axis: plus("[[report.plots]]\nkind = \"bars\"\ntitle = \"Bars\"\nmetric = \"blocks\"\n\
        x = \"rto\"");
    plane_along_its_series: plus("[[axes]]\nname = \"b\"\nkey = \"workloads.w.block_kib\"\nvalues = [1, 2]\n\
        [[report.plots]]\nkind = \"plane\"\ntitle = \"P\"\nx_metric = \"block_p50_ms\"\n\
        y_metric = \"queue_max_segments\"\nseries = \"b\"\nalong = \"b\"");
    empty_plot: plus("[[report.plots]]\nkind = \"series\"\ntitle = \"Series\"\nseries = [\"meas_rtt_ms\"]");
    paper_names_no_axis: plus("[[paper]]\nsource = \"Table I\"\ncell = { rto = \"1 ms\" }\nvalues = { timeouts = 3 }");
    paper_names_no_metric: plus("[[paper]]\nsource = \"Table I\"\nvalues = { timeout = 3 }");
    paper_ratios_of_no_cell: plus("[[axes]]\nname = \"block\"\nkey = \"workloads.w.block_kib\"\nvalues = [64, 128]\n\
        [[paper]]\nsource = \"T\"\n\
        ratios = [{ metric = \"flow\", of = { block = \"64\" }, to = { block = \"128\" }, value = 2 }]\n\
        [[paper]]\nsource = \"T\"\ncell = { block = \"64\" }\n\
        ratios = [{ metric = \"timeouts\", of = { block = \"128\" }, to = { block = \"128\" }, value = 0 }]");
    paper_ratios_of_cells_that_are_not_there: plus("[[axes]]\nname = \"block\"\nkey = \"workloads.w.block_kib\"\n\
        values = [64, 128]\n[[paper]]\nsource = \"T\"\n\
        ratios = [{ metric = \"timeouts\", of = { block = \"65\" }, to = { blocks = \"64\" }, value = 2 },\n\
        { metric = \"timeouts\", of = { block = \"64\" }, to = { block = \"64\" }, value = 2 }]\n\
        [[paper]]\nsource = \"T\"\ncell = { block = \"64\" }\n\
        ratios = [{ metric = \"timeouts\", of = { block = \"128\" }, to = {}, value = 2 }]");
    paper_orders_of_what_has_none: plus("[[axes]]\nname = \"block\"\nkey = \"workloads.w.block_kib\"\n\
        values = [64, 128]\n[[paper]]\nsource = \"T\"\n\
        orders = [{ metric = \"segments_sent\", cells = [{ block = \"64\" }, { block = \"64\" }] },\n\
        { metric = \"goodput_mbit\", cells = [{ block = \"64\" }, {}] }]\n\
        [[paper]]\nsource = \"T\"\norders = [{ metric = \"goodput_mbit\", cells = [{ block = \"64\" }] }]");
    paper_orders_gains_over_nothing: plus("[[axes]]\nname = \"block\"\nkey = \"workloads.w.block_kib\"\n\
        values = [64, 128]\n[[axes]]\nname = \"n\"\nkey = \"repetitions\"\nvalues = [1, 2]\n\
        [[paper]]\nsource = \"T\"\ncell = { n = \"2\" }\n\
        orders = [{ metric = \"timeouts\", cells = [{ block = \"64\" }, { block = \"128\" }], over = { n = \"2\" } }]\n\
        [[paper]]\nsource = \"T\"\n\
        orders = [{ metric = \"timeouts\", cells = [{ block = \"64\" }, { block = \"128\" }], over = { n = \"1\" } },\n\
        { metric = \"timeouts\", cells = [{ block = \"64\" }, { block = \"128\" }], over = { m = \"1\" } }]");
    paper_ratios_of_what_is_never_there: plus("[[axes]]\nname = \"block\"\nkey = \"workloads.w.block_kib\"\n\
        values = [64, 128]\n[[paper]]\nsource = \"T\"\n\
        ratios = [{ metric = \"rtt_mean_ms\", of = { block = \"64\" }, to = { block = \"128\" }, value = 2 }]\n\
        orders = [{ metric = \"fct_max_ms\", cells = [{ block = \"64\" }, { block = \"128\" }] }]");
    factors_of_no_cell: plus("[[axes]]\nname = \"block\"\nkey = \"workloads.w.block_kib\"\nvalues = [64, 128]\n\
        [[report.plots]]\nkind = \"factors\"\ntitle = \"t\"\nmetrics = []\ny = \"blocks\"\nbaseline = {}\n\
        [[report.plots]]\nkind = \"factors\"\ntitle = \"t\"\nmetrics = [\"flows\"]\ny = \"block\"\n\
        baseline = { block = \"65\" }\n[[report.plots]]\nkind = \"factors\"\ntitle = \"t\"\n\
        metrics = [\"flows\"]\ny = \"block\"\nbaseline = { block = \"64\" }");
    paper_names_no_label: plus("[[axes]]\nname = \"block\"\nkey = \"workloads.w.block_kib\"\nvalues = [64, 128]\n\
        [[paper]]\nsource = \"T\"\ncell = { block = \"256\" }\nvalues = { timeouts = 3 }");
    axis_without_values: plus("[[axes]]\nname = \"block\"\nkey = \"workloads.w.block_kib\"");
    axis_without_key: plus("[[axes]]\nname = \"block\"\nvalues = [1]");
    axis_with_both: plus("[[axes]]\nname = \"block\"\nkey = \"workloads.w.block_kib\"\nvalues = [1]\n\
        variants = [{ label = \"a\", set = {} }]");
    axis_with_too_few_labels: plus("[[axes]]\nname = \"block\"\nkey = \"workloads.w.block_kib\"\nvalues = [1, 2]\n\
        labels = [\"one\"]");
    axis_twice: plus("[[axes]]\nname = \"b\"\nkey = \"workloads.w.block_kib\"\nvalues = [1]\n[[axes]]\nname = \"b\"\n\
        key = \"workloads.w.block_kib\"\nvalues = [2, 2]");
    axis_with_an_unknown_key: plus("[[axes]]\nname = \"rto\"\nkey = \"vms.sender.tcp.rto_min\"\n\
        values = [10000, 20000]");
    axis_with_an_unknown_group: plus("[[axes]]\nname = \"n\"\nkey = \"vms.senders.count\"\nvalues = [1, 2]");
    axis_that_cannot_be_varied: plus("[[axes]]\nname = \"seed\"\nkey = \"seed\"\nvalues = [1, 2]");
    axis_with_a_bad_value: plus("[[axes]]\nname = \"n\"\nkey = \"vms.sender.count\"\nvalues = [1, 20000, \"many\"]");
    axis_with_a_bad_variant: plus("[[axes]]\nname = \"a\"\n\
        variants = [{ label = \"x\", set = { \"vms.sender.tcp.era\" = \"old\" } }]");
    axis_that_makes_a_bad_cell: plus("[[axes]]\nname = \"n\"\nkey = \"vms.receiver.count\"\nvalues = [1, 2]");
    axis_value_without_effect: plus("[[axes]]\nname = \"p\"\n\
        variants = [{ label = \"x\", set = { \"vms.sender.pvtcp.hold_rto\" = false } }]");
    too_many_cells: {
        let axis = |name: &str, key: &str| {
            let values: Vec<String> = (1..=64).map(|n| n.to_string()).collect();
            format!("[[axes]]\nname = \"{name}\"\nkey = \"{key}\"\nvalues = [{}]\n", values.join(", "))
        };
        let (block, slice) = (axis("a", "workloads.w.block_kib"), axis("b", "vms.sender.core.slice_ms"));
        plus(&[block, slice, axis("c", "warmup_ms")].concat())
    };
}
