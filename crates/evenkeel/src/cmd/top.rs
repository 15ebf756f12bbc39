//! `evenkeel top`.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use evenkeel_agent::host::{Ask, Client, Flow, Status, Tuple};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Row, Table};
use ratatui::{DefaultTerminal, Frame};
use serde_json::json;

use crate::cli;
use crate::cmd::flows::{alpha, amount};
use crate::cmd::status::uptime;
use crate::error::CliError;
use crate::exit::Exit;
use crate::output;

/// Counters whose rates are shown, with what they are called.
const RATES: &[(&str, &str)] = &[
    ("packets_from_vm", "packets from VMs"),
    ("packets_to_vm", "to VMs"),
    ("syns_from_vm", "SYNs"),
    ("probes_sent", "probes sent"),
    ("probes_seen", "probes seen"),
    ("ce_seen", "CE marks"),
    ("windows_limited", "windows limited"),
];

/// Watches until the user has seen enough.
pub fn run(arguments: &cli::Top) -> Result<(), CliError> {
    let looks = arguments.count.unwrap_or(u64::MAX);
    let interval = Duration::from_secs_f64(arguments.interval);
    let mut watch = Watch::new(Client::connect(&arguments.agent.socket)?, arguments);
    if arguments.agent.json {
        for look in 0..looks {
            if look > 0 {
                std::thread::sleep(interval);
            }
            watch.look()?;
            let line = json!({ "status": watch.view.status(), "flows": watch.view.flows });
            output::print_as_it_is(&format!("{line}\n"))?;
        }
        return Ok(());
    }
    if !std::io::stdout().is_terminal() {
        let error = CliError::new(Exit::Usage, "`evenkeel top` draws on a terminal, and standard output is none");
        return Err(error
            .help("`evenkeel top --json` prints a line per look, `evenkeel status` and `evenkeel flows` print once"));
    }
    watch.look()?;
    let mut terminal = ratatui::init();
    let outcome = draw_until_done(&mut terminal, &mut watch, interval, looks);
    ratatui::restore();
    outcome
}

fn draw_until_done(
    terminal: &mut DefaultTerminal,
    watch: &mut Watch,
    interval: Duration,
    looks: u64,
) -> Result<(), CliError> {
    let failed = |error: std::io::Error| CliError::new(Exit::Failed, format!("the terminal fails: {error}"));
    let mut looked = 1;
    let mut next = Instant::now() + interval;
    loop {
        terminal.draw(|frame| watch.view.draw(frame)).map_err(failed)?;
        let now = Instant::now();
        if now >= next {
            if looked >= looks {
                return Ok(());
            }
            watch.look()?;
            looked += 1;
            next = now + interval;
            continue;
        }
        if !event::poll(next - now).map_err(failed)? {
            continue;
        }
        if let Event::Key(key) = event::read().map_err(failed)? {
            let is_interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
            match key.code {
                _ if key.kind != KeyEventKind::Press => {}
                KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                _ if is_interrupt => return Ok(()),
                KeyCode::Char('s') => watch.view.sort = watch.view.sort.next(),
                _ => {}
            }
        }
    }
}

/// What connections are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Rate,
    Bytes,
    Limited,
    Alpha,
}

impl Sort {
    fn next(self) -> Self {
        match self {
            Self::Rate => Self::Bytes,
            Self::Bytes => Self::Limited,
            Self::Limited => Self::Alpha,
            Self::Alpha => Self::Rate,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Bytes => "bytes",
            Self::Limited => "ACKs limited",
            Self::Alpha => "alpha",
        }
    }
}

/// The agent, and what it said.
struct Watch {
    client: Client,
    limit: usize,
    is_for_programs: bool,
    view: View,
}

impl Watch {
    fn new(client: Client, arguments: &cli::Top) -> Self {
        Self { client, limit: arguments.limit, is_for_programs: arguments.agent.json, view: View::new() }
    }

    fn look(&mut self) -> Result<(), CliError> {
        let mut status = self.client.status()?;
        let (flows, total) = self.client.flows(Ask::Flows { tuple: None, limit: Some(self.limit) })?;
        let mut flows: Vec<Flow> = flows.into_iter().map(|f| f.flow).collect();
        if !self.is_for_programs {
            (status, flows) = output::on_one_line(&(status, flows))?;
        }
        self.view.saw(Instant::now(), status, flows, total);
        Ok(())
    }
}

/// Two looks at the agent: what is, and what was.
struct View {
    now: Option<(Instant, Status)>,
    before: Option<(Instant, Status)>,
    flows: Vec<Flow>,
    total: u64,
    bytes_before: BTreeMap<String, u64>,
    sort: Sort,
}

impl View {
    fn new() -> Self {
        Self { now: None, before: None, flows: Vec::new(), total: 0, bytes_before: BTreeMap::new(), sort: Sort::Rate }
    }

    fn saw(&mut self, now: Instant, status: Status, flows: Vec<Flow>, total: u64) {
        self.bytes_before = self.flows.iter().map(|flow| (identity(flow), flow.bytes())).collect();
        (self.flows, self.total) = (flows, total);
        self.before = self.now.replace((now, status));
    }

    fn status(&self) -> Option<&Status> {
        self.now.as_ref().map(|(_, status)| status)
    }

    /// Seconds between the looks.
    fn elapsed_s(&self) -> Option<f64> {
        let ((now, _), (before, _)) = (self.now.as_ref()?, self.before.as_ref()?);
        Some(now.duration_since(*before).as_secs_f64()).filter(|s| *s > 0.0)
    }

    /// How much a counter grows in a second; nothing before the second look, or if it began anew.
    fn rate(&self, now: u64, before: Option<u64>) -> Option<u64> {
        let grown = now.checked_sub(before?)?;
        Some((grown as f64 / self.elapsed_s()?) as u64)
    }

    fn flow_rate(&self, flow: &Flow) -> u64 {
        self.rate(flow.bytes(), self.bytes_before.get(&identity(flow)).copied()).unwrap_or(0)
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let Some(status) = self.status() else { return };
        let ports =
            u16::try_from(status.ports.len()).unwrap_or(u16::MAX).saturating_add(3).min(frame.area().height / 3);
        let [head, middle, bottom] =
            Layout::vertical([Constraint::Length(3), Constraint::Length(ports.max(3)), Constraint::Min(3)])
                .areas(frame.area());
        frame.render_widget(ratatui::widgets::Paragraph::new(self.head(status)), head);
        frame.render_widget(self.port_table(status), middle);
        frame.render_widget(self.flow_table(), bottom);
    }

    fn head(&self, status: &Status) -> Vec<Line<'static>> {
        let before = self.before.as_ref().map(|(_, status)| &status.counters);
        let rates = RATES.iter().map(|(key, name)| {
            let now = status.counters.get(*key).copied().unwrap_or(0);
            let rate = self.rate(now, before.and_then(|b| b.get(*key).copied()));
            format!("{name} {}", rate.map_or("-".to_owned(), |r| format!("{}/s", amount(r))))
        });
        let title = format!(
            "evenkeel host {}, up {}, {} connections, {} SYNs waiting, {} SYN-ACKs held",
            status.version,
            uptime(status.uptime_s),
            status.flows,
            status.syns_pending,
            status.synacks_held
        );
        let warning = match (&status.config_refused, status.probe_keys) {
            (Some(why), _) => Line::from(format!("configuration refused: {why}")).red(),
            (None, 0) => Line::from("no probe key: no probes are sent or believed").yellow(),
            _ => Line::default(),
        };
        vec![Line::from(title).bold(), Line::from(rates.collect::<Vec<_>>().join(", ")), warning]
    }

    fn port_table(&self, status: &Status) -> Table<'static> {
        let rows: Vec<Row<'static>> = status
            .ports
            .iter()
            .map(|port| {
                let before = self.before.as_ref().and_then(|(_, s)| s.ports.iter().find(|p| p.name == port.name));
                let rate = |key: &str| {
                    let now = port.counters.get(key).copied().unwrap_or(0);
                    self.rate(now, before.and_then(|b| b.counters.get(key).copied()))
                        .map_or("-".to_owned(), |r| format!("{}/s", amount(r)))
                };
                let row = Row::new(vec![
                    port.name.clone(),
                    port.domain().unwrap_or("-").to_owned(),
                    port.mode.to_string(),
                    port.queue_segments.to_string(),
                    rate("packets_from_vm"),
                    rate("packets_to_vm"),
                    rate("probes_sent"),
                    rate("ce_seen"),
                    rate("windows_limited"),
                    port.error.clone().unwrap_or_else(|| "ok".to_owned()),
                ]);
                if port.error.is_some() { row.red() } else { row }
            })
            .collect();
        let widths =
            [16, 16, 8, 7, 11, 11, 11, 11, 11].map(Constraint::Length).into_iter().chain([Constraint::Min(10)]);
        Table::new(rows, widths)
            .header(header(&[
                "port", "domain", "mode", "queue", "from VM", "to VM", "probes", "CE", "limited", "state",
            ]))
            .block(Block::new().title("ports").borders(ratatui::widgets::Borders::TOP))
    }

    fn flow_table(&self) -> Table<'static> {
        let mut flows: Vec<&Flow> = self.flows.iter().collect();
        flows.sort_by_key(|flow| {
            std::cmp::Reverse(match self.sort {
                Sort::Rate => self.flow_rate(flow),
                Sort::Bytes => flow.bytes(),
                Sort::Limited => u64::from(flow.window.limited_acks),
                Sort::Alpha => u64::from(flow.alpha_permille.unwrap_or(0)),
            })
        });
        let rows = flows.into_iter().map(|flow| {
            let row = Row::new(vec![
                flow.tuple.to_string(),
                flow.network(),
                flow.port.clone(),
                flow.domain.clone().unwrap_or_else(|| "-".to_owned()),
                format!("{}/s", amount(self.flow_rate(flow))),
                amount(flow.bytes_from_vm),
                amount(flow.bytes_to_vm),
                amount(u64::from(flow.window.set_bytes)),
                flow.window.set_by.to_string(),
                flow.window.limited_acks.to_string(),
                alpha(flow),
            ]);
            if flow.is_closed { row.dim() } else { row }
        });
        let widths = [44, 9, 16, 16, 8, 8, 8, 8, 9, 9, 6].map(Constraint::Length);
        let title = format!("{} of {} connections, by {} (s), q ends", self.flows.len(), self.total, self.sort.name());
        Table::new(rows.collect::<Vec<_>>(), widths)
            .header(header(&[
                "connection (VM first)",
                "VLAN",
                "port",
                "domain",
                "rate",
                "from VM",
                "to VM",
                "window",
                "set by",
                "limited",
                "alpha",
            ]))
            .block(Block::new().title(title).borders(ratatui::widgets::Borders::TOP))
    }
}

/// The same ends can be on two ports of one host, and in two VLANs of one port.
fn identity(flow: &Flow) -> String {
    let tuple: Tuple = flow.tuple;
    format!("{} {} {tuple}", flow.port, flow.network())
}

fn header(names: &[&'static str]) -> Row<'static> {
    Row::new(names.to_vec()).style(Style::new().bold())
}

#[cfg(test)]
mod tests {
    use evenkeel_agent::datapath::Others;
    use evenkeel_agent::host::{Answer, CeraPortReport, Ecn, Port, Probes, SetBy, Window};
    use evenkeel_settings::Mode;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn status(packets: u64) -> Status {
        let counters = BTreeMap::from([("packets_from_vm".to_owned(), packets)]);
        Status {
            version: "0.1.0".into(),
            pid: 1,
            uptime_s: 90,
            took_over: false,
            config: "host.toml".into(),
            config_is_default: false,
            config_refused: None,
            notes_error: None,
            attach: None,
            lacking: Vec::new(),
            probe_keys: 0,
            flows: 2,
            flows_room: 10,
            vflood_connections: None,
            vflood_connections_room: 16384,
            syns_pending: 0,
            synacks_held: 0,
            cera: None,
            ports: vec![Port {
                name: "vnet0".into(),
                ifindex: 3,
                mode: Mode::Observe,
                cera: CeraPortReport::default(),
                channel: None,
                vm: None,
                tap: None,
                others: Others::default(),
                trial: None,
                vsnoop: None,
                vflood: None,
                error: None,
                offline: None,
                queue_segments: 4000,
                queue_before_segments: Some(1000),
                counters: counters.clone(),
            }],
            counters,
            agent: BTreeMap::new(),
        }
    }

    fn flow(tuple: &str, bytes: u64) -> Flow {
        Flow {
            tuple: tuple.parse().unwrap(),
            vlans: Vec::new(),
            port: "vnet0".into(),
            domain: None,
            mode: Mode::Observe,
            opened_by_vm: true,
            is_closed: false,
            age_ms: 0,
            idle_ms: 0,
            bytes_from_vm: bytes,
            bytes_to_vm: 0,
            ecn: Ecn::None,
            has_accurate_ecn: false,
            peer_has_evenkeel: false,
            peer_is_gone: false,
            is_routed: false,
            is_elephant: false,
            is_local: false,
            probes: Probes { sent: 0, seen: 0, marked: 0 },
            answer: Answer::default(),
            window: Window {
                set_by: SetBy::Receiver,
                offered_bytes: 65_535,
                set_bytes: 65_535,
                limited_acks: 0,
                synack_bytes: 0,
            },
            alpha_permille: None,
            dctcp_limit_bytes: 0,
            echo_owed_bytes: 0,
        }
    }

    fn screen(view: &View) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(140, 20)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        buffer.content.chunks(140).map(|line| line.iter().map(|cell| cell.symbol()).collect()).collect()
    }

    #[test]
    fn rates_come_with_the_second_look() {
        let (small, large) = ("10.0.0.1:1-10.0.0.2:2", "10.0.0.1:3-10.0.0.2:4");
        let start = Instant::now();
        let mut view = View::new();
        view.saw(start, status(1000), vec![flow(small, 10), flow(large, 5_000_000)], 2);
        let lines = screen(&view);
        assert!(lines[0].contains("2 connections") && lines[1].contains("packets from VMs -,"), "{lines:#?}");
        assert!(lines[2].contains("no probe key"), "{lines:#?}");

        view.saw(start + Duration::from_secs(2), status(7000), vec![flow(small, 4010), flow(large, 5_000_000)], 2);
        let lines = screen(&view);
        assert!(lines[1].contains("packets from VMs 3.0k/s"), "{lines:#?}");
        assert!(
            lines.iter().any(|l| l.contains("vnet0") && l.contains("observe") && l.contains("3.0k/s")),
            "{lines:#?}"
        );
        let place = |tuple: &str| lines.iter().position(|l| l.contains(tuple)).unwrap();
        assert!(lines[place(small)].contains("2.0k/s"), "{lines:#?}");
        assert!(place(small) < place(large), "by rate: {lines:#?}");

        view.sort = view.sort.next();
        let lines = screen(&view);
        let place = |tuple: &str| lines.iter().position(|l| l.contains(tuple)).unwrap();
        assert!(place(large) < place(small), "by bytes: {lines:#?}");
    }
}
