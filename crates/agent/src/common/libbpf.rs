//! What libbpf prints goes into the log, and why the verifier refused a program into the error that follows.

use std::cell::RefCell;

use libbpf_rs::PrintLevel;

const LOG_BEGINS: &str = "-- BEGIN PROG LOAD LOG --";
const LOG_ENDS: &str = "-- END PROG LOAD LOG --";

thread_local! {
    /// Why the last program was refused; libbpf prints on the thread that loads.
    static VERDICT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Logs what libbpf prints. The trace of a refused program has thousands of lines, so it is logged at debug level.
pub(crate) fn log(level: PrintLevel, text: String) {
    if text.contains(LOG_BEGINS) {
        VERDICT.set(verdict(&text));
        return text.lines().for_each(|line| tracing::debug!("{line}"));
    }
    for line in text.trim_end().lines() {
        match level {
            PrintLevel::Warn => tracing::warn!("{line}"),
            PrintLevel::Info => tracing::info!("{line}"),
            PrintLevel::Debug => tracing::trace!("{line}"),
        }
    }
}

/// The verifier's last words since this was asked last: why it refused a program.
pub(crate) fn take_verdict() -> Option<String> {
    VERDICT.take()
}

/// The first line of the last block before the sum (`processed …`) that is no trace: verbose() of
/// kernel/bpf/verifier.c writes reasons between instructions (`12: (79) r2 = …`), source (`; …`) and states.
fn verdict(log: &str) -> Option<String> {
    let is_trace = |line: &str| {
        line.starts_with([' ', ';'])
            || line.starts_with("from ")
            || line.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with(':')
    };
    let lines: Vec<&str> = log.lines().take_while(|line| !line.contains(LOG_ENDS)).collect();
    let before_sum = lines.iter().rposition(|line| line.starts_with("processed ")).unwrap_or(lines.len());
    let words = lines[..before_sum].rsplit(|line| is_trace(line)).next()?;
    words.iter().find(|line| !line.is_empty() && !line.contains(LOG_BEGINS)).map(|line| (*line).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of Linux 6.1.
    const REFUSED: &str = "libbpf: prog 'to_vm': -- BEGIN PROG LOAD LOG --
Func#57 is safe for any args that match its prototype
; head_options(c->head, c->packet, &o);
3958: (bf) r3 = r10                   ; frame2: R3_w=fp0 R10=fp0
3960: (85) call pc+2
invalid indirect read from stack R3 off -24+0 size 24
Caller passes invalid args into func#12
processed 44200 insns (limit 1000000) max_states_per_insn 34 total_states 2063 peak_states 920 mark_read 36
-- END PROG LOAD LOG --
";

    #[test]
    fn says_why_the_verifier_refuses() {
        assert_eq!(verdict(REFUSED).as_deref(), Some("invalid indirect read from stack R3 off -24+0 size 24"));
        let cut = "libbpf: prog 'p': -- BEGIN PROG LOAD LOG --\n12: R1=0\n(truncated)\n-- END PROG LOAD LOG --\n";
        assert_eq!(verdict(cut).as_deref(), Some("(truncated)"));
        let silent = "libbpf: prog 'p': -- BEGIN PROG LOAD LOG --\nprocessed 0 insns\n-- END PROG LOAD LOG --\n";
        assert_eq!(verdict(silent), None);
    }

    #[test]
    fn a_verdict_is_told_once() {
        log(PrintLevel::Warn, REFUSED.to_owned());
        assert!(take_verdict().is_some_and(|words| words.starts_with("invalid indirect read")));
        assert_eq!(take_verdict(), None);
    }
}
