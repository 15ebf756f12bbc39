/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * ProBoSCIS (Abdelmoniem, Bensaou, Susanto: Taming Latency in Data centers via
 * Active Congestion-Probing): probes before a SYN, the first window by what
 * came of them, DCTCP by receive window afterwards.
 *
 * The caller parses packets, keeps the state and sends; the functions answer
 * what to do. Windows are bytes.
 */
#ifndef EVENKEEL_ALGO_PROBOSCIS_PROBOSCIS_H
#define EVENKEEL_ALGO_PROBOSCIS_PROBOSCIS_H

#include "../congestion/dctcp.h"
#include "../base/packet.h"
#include "../base/seq.h"
#include "../base/siphash.h"
#include "../base/window.h"

#define PROBOSCIS_MAX_PROBES 64 /* of one train */

/* A peer that left so many handshakes unanswered is probed at every 64th SYN. */
#define PROBOSCIS_PATIENCE 16
#define PROBOSCIS_SELDOM 64

/* Defaults of the settings. */
#define PROBOSCIS_PROBES 10
#define PROBOSCIS_K1_PERMILLE 62
#define PROBOSCIS_K2_PERMILLE 500
#define PROBOSCIS_K_PERCENT 50
#define PROBOSCIS_B1_US 4000
#define PROBOSCIS_B2_US 20000
#define PROBOSCIS_B3_US 1000
#define PROBOSCIS_MAX_TIME_US 60000
#define PROBOSCIS_ICWND_SEGMENTS 10

/* A train of a burst of connections has no fewer, unless g is less. */
#define PROBOSCIS_LEAST_PROBES 2

/* How often it is looked whether a held SYN-ACK's probes are in. */
#define PROBOSCIS_HELD_POLL_US 250

struct proboscis_settings {
	u32 probes; /* g: probes before a SYN, 0: none */
	u32 k1_permille; /* alpha from which DCTCP limits the window */
	u32 k2_permille; /* marked share of probes above which the first window is one MSS
			  */
	u32 k_percent; /* share of probes that must have come, or it is one MSS */
	u32 b1_us; /* probes are sent again after */
	u32 b2_us; /* the SYN is sent again after */
	u32 b3_us; /* a SYN-ACK waits no longer for late probes */
	u32 max_time_us; /* nothing is sent again after */
	u32 icwnd_segments; /* initial window where nothing is marked */
	u32 budget_probes_per_s; /* of one VM, in the long run */
	u32 budget_burst_probes; /* of one VM, at once */
	u32 pad;
	u64 elephant_bytes; /* flows that sent more are left alone, 0: none are */
};

/* ---- The sender's host: ProBoSCIS Algorithm 1 -------------------------- */

/**
 * proboscis_budget() - may a VM's host send so many probes?
 * @state_ns: the VM's budget, 0 at first; time until which it is spent
 *
 * A SYN flood must not become a flood of probes.
 *
 * Return: the new state, or 0 if the budget is used up.
 */
static inline u64 proboscis_budget(const struct proboscis_settings *set, u64 state_ns,
				   u64 now_ns, u32 probes)
{
	u64 spent_ns = state_ns > now_ns ? state_ns : now_ns;
	u64 burst_ns;

	if (!set->budget_probes_per_s)
		return 0;
	burst_ns = set->budget_burst_probes * 1000000000ull / set->budget_probes_per_s;
	spent_ns += probes * 1000000000ull / set->budget_probes_per_s;
	return spent_ns - now_ns <= burst_ns ? spent_ns : 0;
}

/**
 * proboscis_train_length() - how many probes of a train to send
 * @state_ns: the VM's, 0 at first; time until which its trains are on their way
 * @probes: as many as are wanted
 *
 * Ports count packets: a burst of connections would fill one with its probes, and lose
 * the SYNs behind them. So the trains of the last b1, for which probes are waited for,
 * share two full ones: each has half of what is left.
 */
static inline u32 proboscis_train_length(const struct proboscis_settings *set,
					 u64 *state_ns, u64 now_ns, u32 probes)
{
	u64 share = 2ull * set->probes;
	u64 span_ns = set->b1_us * 1000ull;
	u64 until_ns = *state_ns > now_ns ? *state_ns : now_ns;
	u64 under_way, most;

	if (!share || !span_ns)
		return probes;
	under_way = (until_ns - now_ns) * share / span_ns;
	most = under_way < share ? (share - under_way) / 2 : 0;
	if (most < PROBOSCIS_LEAST_PROBES)
		most = PROBOSCIS_LEAST_PROBES;
	if (probes > most)
		probes = (u32)most;
	until_ns += probes * span_ns / share;
	*state_ns = until_ns < now_ns + span_ns ? until_ns : now_ns + span_ns;
	return probes;
}

/* What a remote host has made of probes so far. */
struct proboscis_peer {
	u32 unanswered; /* handshakes since the last answer */
	u32 spared; /* SYNs without probes since the last with */
};

static inline void proboscis_peer_answered(struct proboscis_peer *p)
{
	p->unanswered = 0;
	p->spared = 0;
}

static inline void proboscis_peer_silent(struct proboscis_peer *p)
{
	if (p->unanswered < PROBOSCIS_PATIENCE)
		p->unanswered++;
}

/* It was long ago: whoever was silent is asked once more. */
static inline void proboscis_peer_forget(struct proboscis_peer *p)
{
	if (p->unanswered >= PROBOSCIS_PATIENCE)
		p->unanswered = PROBOSCIS_PATIENCE - 1;
	p->spared = 0;
}

/* Is it worth while to probe? Hosts without evenkeel are left in peace. */
static inline bool proboscis_peer_probe(struct proboscis_peer *p)
{
	if (p->unanswered < PROBOSCIS_PATIENCE)
		return true;
	if (++p->spared < PROBOSCIS_SELDOM)
		return false;
	p->spared = 0;
	return true;
}

/* A SYN that is waiting for its SYN-ACK. */
struct proboscis_pending {
	u64 syn_us; /* when the SYN was first sent */
	u64 probes_us; /* when probes were last sent */
	u64 last_syn_us; /* when the SYN was last sent */
	u32 probe_retries;
	u32 syn_retries;
	u32 is_stranger; /* the peer was never heard of: it may be far, and without
			    evenkeel */
	u32 pad;
};

enum proboscis_resend {
	PROBOSCIS_WAIT,
	PROBOSCIS_RESEND_PROBES,
	PROBOSCIS_RESEND_BOTH, /* probes, then the SYN */
	PROBOSCIS_GIVE_UP,
};

static inline void proboscis_pending_init(struct proboscis_pending *p, u64 now_us,
					  bool is_stranger)
{
	p->syn_us = now_us;
	p->probes_us = now_us;
	p->last_syn_us = now_us;
	p->probe_retries = 0;
	p->syn_retries = 0;
	p->is_stranger = is_stranger;
	p->pad = 0;
}

/**
 * proboscis_expire() - the timer of ProBoSCIS Algorithm 1, lines 22 to 37
 * @probes: how many to send
 *
 * Printed, b2 is tested only if b1 has not passed, which with b1 < b2 it always
 * has: the SYN would never be sent again. Here b2 is tested first. A stranger is sent
 * both once more, after b2, and nothing else.
 */
static inline enum proboscis_resend proboscis_expire(struct proboscis_pending *p,
						     const struct proboscis_settings *set,
						     u64 now_us, u32 *probes)
{
	bool syn_due = now_us >= p->last_syn_us + set->b2_us;

	*probes = 0;
	if (now_us > p->syn_us + set->max_time_us || (p->is_stranger && p->syn_retries))
		return PROBOSCIS_GIVE_UP;
	if (!syn_due && (p->is_stranger || now_us < p->probes_us + set->b1_us))
		return PROBOSCIS_WAIT;
	p->probe_retries++;
	p->probes_us = now_us;
	*probes = set->probes * p->probe_retries;
	if (p->probe_retries > PROBOSCIS_MAX_PROBES || *probes > PROBOSCIS_MAX_PROBES)
		*probes = PROBOSCIS_MAX_PROBES;
	if (!syn_due)
		return PROBOSCIS_RESEND_PROBES;
	p->syn_retries++;
	p->last_syn_us = now_us;
	return PROBOSCIS_RESEND_BOTH;
}

/* When proboscis_expire() is to be called next. */
static inline u64 proboscis_due_us(const struct proboscis_pending *p,
				   const struct proboscis_settings *set)
{
	u64 probes_us = p->probes_us + set->b1_us;
	u64 syn_us = p->last_syn_us + set->b2_us;
	u64 end_us = p->syn_us + set->max_time_us + 1;
	u64 due_us = probes_us < syn_us && !p->is_stranger ? probes_us : syn_us;

	return due_us < end_us ? due_us : end_us;
}

/* DCTCP for one direction of a flow, from what passes the sender's host. */
struct proboscis_sender {
	struct dctcp dctcp; /* counts bytes */
	u32 snd_nxt; /* end of what was sent */
	u32 snd_una; /* highest acknowledgement */
	u32 window_end; /* alpha is updated when this is acknowledged */
	u32 peak_bytes; /* largest flight in this window of data */
	u32 limit_bytes; /* 0: none */
	u32 cut_end; /* end of what was sent when the limit was last lowered */
	u32 cutting; /* and not all of that is acknowledged */
};

static inline void proboscis_sender_init(struct proboscis_sender *s, u32 seq)
{
	dctcp_init(&s->dctcp);
	s->snd_nxt = seq;
	s->snd_una = seq;
	s->window_end = seq;
	s->peak_bytes = 0;
	s->limit_bytes = 0;
	s->cut_end = seq;
	s->cutting = 0;
}

/* What was sent beyond an ACK; 0 if that makes no sense. */
static inline u32 proboscis_in_flight(const struct proboscis_sender *s, u32 ack)
{
	return seq_after(s->snd_nxt, ack) ? s->snd_nxt - ack : 0;
}

/* An ACK of a flow that DCTCP does not act for. */
static inline void proboscis_acked_by_others(struct proboscis_sender *s, u32 ack)
{
	if (seq_after(ack, s->snd_una) && !seq_after(ack, s->snd_nxt))
		s->snd_una = ack;
}

/* A segment that ends before @end leaves. Return: bytes that are new. */
static inline u32 proboscis_sent(struct proboscis_sender *s, u32 end)
{
	u32 fresh;

	if (!seq_after(end, s->snd_nxt))
		return 0;
	fresh = end - s->snd_nxt;
	/* The first segment after all was acknowledged begins a window of data. */
	if (s->snd_una == s->snd_nxt)
		s->window_end = end;
	s->snd_nxt = end;
	if (s->snd_nxt - s->snd_una > s->peak_bytes)
		s->peak_bytes = s->snd_nxt - s->snd_una;
	return fresh;
}

/*
 * A mark was echoed: DCTCP lowers the window at the first of them, by the alpha
 * that it has, and once for all that is in flight then. To wait for the window's
 * end would let slow start double once more.
 */
static inline void proboscis_cut(struct proboscis_sender *s,
				 const struct proboscis_settings *set, u32 mss)
{
	u32 least = RENO_MIN_CWND * mss;
	u32 base = s->peak_bytes;

	if (s->limit_bytes && s->limit_bytes < base)
		base = s->limit_bytes;
	if (s->cutting || (u64)s->dctcp.alpha * 1000 < (u64)set->k1_permille * DCTCP_ONE)
		return;
	s->limit_bytes = base - (u32)((u64)base * s->dctcp.alpha >> 11);
	if (s->limit_bytes < least)
		s->limit_bytes = least;
	s->cut_end = s->snd_nxt;
	s->cutting = 1;
}

/*
 * A window of data without marks: one segment more, as DCTCP has it. Once alpha
 * is below k1, by half, and there is no limit any more when the VM fills no
 * half of it: a limit that ended at once would let all go that the VM's own
 * window has grown by meanwhile.
 */
static inline void proboscis_grow(struct proboscis_sender *s, bool is_calm, u32 mss)
{
	u32 more = mss;

	if (is_calm && s->limit_bytes / 2 > more)
		more = s->limit_bytes / 2;
	s->limit_bytes += more;
	if ((is_calm && s->limit_bytes / 2 > s->peak_bytes) || s->limit_bytes > 1u << 30)
		s->limit_bytes = 0;
}

/* A window of data has been acknowledged. */
static inline void proboscis_window_end(struct proboscis_sender *s,
					const struct proboscis_settings *set, u32 mss)
{
	bool marked = s->dctcp.marked != 0;

	dctcp_window_end(&s->dctcp);
	if (!marked && s->limit_bytes)
		proboscis_grow(s,
			       (u64)s->dctcp.alpha * 1000 <
				       (u64)set->k1_permille * DCTCP_ONE,
			       mss);
	s->window_end = s->snd_nxt;
	s->peak_bytes = s->snd_nxt - s->snd_una;
}

/**
 * proboscis_acked() - an ACK for what the VM has sent
 * @echo: it carries the receiver's host's echo of marks
 *
 * Return: the limit to the VM's window, 0 if there is none.
 */
static __always_inline u32 proboscis_acked(struct proboscis_sender *s,
					   const struct proboscis_settings *set, u32 ack,
					   bool echo, u32 mss)
{
	/* Beyond what was seen to be sent: a forgery, or packets took another way. */
	if (seq_after(ack, s->snd_nxt) || !seq_after(ack, s->snd_una))
		return s->limit_bytes;
	dctcp_count(&s->dctcp, ack - s->snd_una, echo);
	s->snd_una = ack;
	if (!seq_before(ack, s->cut_end))
		s->cutting = 0;
	if (echo)
		proboscis_cut(s, set, mss);
	if (!seq_before(ack, s->window_end))
		proboscis_window_end(s, set, mss);
	return s->limit_bytes;
}

/*
 * A limit that is still two segments when it is rounded down to the scale of the
 * window in which the VM is told: with less, it sends one and waits.
 */
static inline u32 proboscis_limit(u32 limit_bytes, u32 mss, u8 scale)
{
	u32 least = window_with_room(RENO_MIN_CWND * mss, scale);

	return !limit_bytes || limit_bytes >= least ? limit_bytes : least;
}

/* ---- The receiver's host: ProBoSCIS Algorithm 2 ------------------------ */

/* What came of a train of probes. */
struct proboscis_train {
	u64 indexes; /* which, a bit each */
	u8 number; /* a SYN's first train has 0 */
	u8 total; /* how many were sent */
	u8 seen;
	u8 marked;
	u32 pad;
};

/*
 * A probe came. Only the latest train counts, and each of its probes once.
 *
 * Return: whether it counted.
 */
static inline bool proboscis_count(struct proboscis_train *t, u8 number, u8 index,
				   u8 total, bool marked)
{
	if (!total || total > PROBOSCIS_MAX_PROBES || index >= total)
		return false;
	if (t->total && number < t->number)
		return false;
	if (!t->total || number > t->number) {
		t->indexes = 0;
		t->number = number;
		t->total = total;
		t->seen = 0;
		t->marked = 0;
	}
	if (total != t->total || t->indexes >> index & 1)
		return false;
	t->indexes |= 1ull << index;
	t->seen++;
	t->marked += marked;
	return true;
}

/* Does a SYN-ACK have to wait for late probes? */
static inline bool proboscis_synack_waits(const struct proboscis_train *t,
					  const struct proboscis_settings *set,
					  u64 since_syn_us)
{
	return t->seen && t->seen < t->total && since_syn_us < set->b3_us;
}

enum proboscis_verdict {
	PROBOSCIS_NO_PROBES, /* the window is the VM's own */
	PROBOSCIS_SCALED, /* by the share of probes without a mark */
	PROBOSCIS_ONE_MSS, /* too many were lost or marked */
};

/**
 * proboscis_first_window() - ProBoSCIS Algorithm 2, lines 18 to 21
 * @mss: bytes that the opener puts into a segment
 * @bytes: the limit to the SYN-ACK's window
 *
 * Line 19 prints min(1 MSS, b * ICWND): never more than one MSS, and growing
 * with congestion. The text says what is meant: max(1 MSS, (1 - b) * ICWND).
 * The result is a whole number of segments, so that none is cut short.
 */
static inline enum proboscis_verdict
proboscis_first_window(const struct proboscis_train *t,
		       const struct proboscis_settings *set, u32 mss, u32 *bytes)
{
	u32 segments;

	*bytes = 0;
	if (!t->seen)
		return PROBOSCIS_NO_PROBES;
	*bytes = mss;
	if ((u32)t->seen * 100 < (u32)t->total * set->k_percent)
		return PROBOSCIS_ONE_MSS;
	if ((u32)t->marked * 1000 > (u32)t->seen * set->k2_permille)
		return PROBOSCIS_ONE_MSS;
	segments = (u32)((u64)(t->seen - t->marked) * set->icwnd_segments / t->seen);
	if (segments > 1)
		*bytes = segments * mss;
	return PROBOSCIS_SCALED;
}

/* Marks that came for a guest without ECN, to be echoed in its ACKs. */
struct proboscis_echo {
	u32 acked; /* highest acknowledgement that the VM sent */
	s32 owed_bytes; /* marked and not yet echoed; below 0: echoed too much */
};

#define PROBOSCIS_MAX_OWED (1 << 28)

static inline void proboscis_echo_init(struct proboscis_echo *e, u32 ack)
{
	e->acked = ack;
	e->owed_bytes = 0;
}

/* A marked segment came. */
static inline void proboscis_marked(struct proboscis_echo *e, u32 bytes)
{
	if (bytes < PROBOSCIS_MAX_OWED && e->owed_bytes < PROBOSCIS_MAX_OWED)
		e->owed_bytes += (s32)bytes;
}

/*
 * The VM sends an ACK. One bit stands for all that it acknowledges: it is set
 * if most of that is owed, and the rest is carried over, so that the bytes
 * echoed are those marked, however the VM delays its ACKs (the state machine of
 * RFC 8257 needs an ACK at each change, which a host cannot make its VM send).
 */
static inline bool proboscis_echo(struct proboscis_echo *e, u32 ack)
{
	u32 covered = ack - e->acked;

	if (!seq_after(ack, e->acked) || covered >= PROBOSCIS_MAX_OWED)
		return false;
	e->acked = ack;
	if (e->owed_bytes <= 0 || (u64)e->owed_bytes * 2 < covered)
		return false;
	e->owed_bytes -= (s32)covered;
	return true;
}

/* ---- On the wire ------------------------------------------------------- */

/*
 * Probes and reports are TCP segments without data, with RST and nothing else
 * set (a SYN's first train) or no flag at all (all others), and a sequence number
 * half the number space away from the SYN's. No TCP answers a RST, and all are
 * outside of every window. Their one option:
 *
 *   byte  0  kind 254 (RFC 4727)
 *         1  length 20
 *         2  "EVKL" (ExID, RFC 6994)
 *         6  version << 4 | type
 *         7  train
 *         8  index       report: 0
 *         9  total
 *        10  report: probes that came; probe: 0
 *        11  report: marked ones; probe: 0
 *        12  tag, little-endian
 */
#define PROBOSCIS_OPTION_KIND 254
#define PROBOSCIS_OPTION_BYTES 20
#define PROBOSCIS_TCP_BYTES (20 + PROBOSCIS_OPTION_BYTES)
#define PROBOSCIS_EXID 0x45564b4cu
#define PROBOSCIS_VERSION 1
#define PROBOSCIS_SEQ_OFFSET 0x80000000u

enum proboscis_type {
	PROBOSCIS_PROBE = 1, /* sender's host to receiver's host */
	PROBOSCIS_REPORT = 2, /* back, before the SYN-ACK: this host has evenkeel */
};

/*
 * The flags of TCP. A firewall that tracks connections may take a RST between SYN and
 * SYN-ACK for the connection's end, and let no SYN-ACK pass then; what has no flags is of
 * no connection to it. The first train goes ahead of the SYN, and is not to be answered
 * where nobody listens.
 */
static inline u32 proboscis_flags(u8 type, u8 train)
{
	return type == PROBOSCIS_PROBE && !train ? PACKET_RST : 0;
}

struct proboscis_option {
	u8 type; /* enum proboscis_type */
	u8 train;
	u8 index;
	u8 total;
	u8 seen;
	u8 marked;
};

/* What a tag binds a probe to. Addresses in network order, IPv4 as ::ffff:a.b.c.d. */
struct proboscis_path {
	u8 source[16];
	u8 destination[16];
	u16 source_port;
	u16 destination_port;
	u32 iss; /* of the SYN */
};

/* All of a tag that is the same for a whole train. */
static inline void proboscis_tag_start(struct siphash *s, const struct siphash_key *key,
				       const struct proboscis_path *path)
{
	siphash_start(s, key);
	siphash_word(s, siphash_load(path->source));
	siphash_word(s, siphash_load(path->source + 8));
	siphash_word(s, siphash_load(path->destination));
	siphash_word(s, siphash_load(path->destination + 8));
	siphash_word(s, (u64)path->source_port | (u64)path->destination_port << 16 |
				(u64)path->iss << 32);
}

static inline u64 proboscis_tag(const struct siphash *start,
				const struct proboscis_option *o)
{
	struct siphash s = *start;

	siphash_word(&s, (u64)PROBOSCIS_VERSION << 4 | (u64)o->type | (u64)o->train << 8 |
				 (u64)o->index << 16 | (u64)o->total << 24 |
				 (u64)o->seen << 32 | (u64)o->marked << 40);
	return siphash_end(&s);
}

static inline void proboscis_option_write(u8 out[PROBOSCIS_OPTION_BYTES],
					  const struct proboscis_option *o, u64 tag)
{
	u32 i;

	out[0] = PROBOSCIS_OPTION_KIND;
	out[1] = PROBOSCIS_OPTION_BYTES;
	out[2] = (u8)(PROBOSCIS_EXID >> 24);
	out[3] = (u8)(PROBOSCIS_EXID >> 16);
	out[4] = (u8)(PROBOSCIS_EXID >> 8);
	out[5] = (u8)PROBOSCIS_EXID;
	out[6] = (u8)(PROBOSCIS_VERSION << 4 | o->type);
	out[7] = o->train;
	out[8] = o->index;
	out[9] = o->total;
	out[10] = o->seen;
	out[11] = o->marked;
	for (i = 0; i < 8; i++)
		out[12 + i] = (u8)(tag >> 8 * i);
}

/* Return: false if these bytes are not such an option in a version and type known here.
 */
static inline bool proboscis_option_read(const u8 in[PROBOSCIS_OPTION_BYTES],
					 struct proboscis_option *o, u64 *tag)
{
	if (in[0] != PROBOSCIS_OPTION_KIND || in[1] != PROBOSCIS_OPTION_BYTES)
		return false;
	if (((u32)in[2] << 24 | (u32)in[3] << 16 | (u32)in[4] << 8 | in[5]) !=
	    PROBOSCIS_EXID)
		return false;
	if (in[6] >> 4 != PROBOSCIS_VERSION)
		return false;
	o->type = in[6] & 0xf;
	o->train = in[7];
	o->index = in[8];
	o->total = in[9];
	o->seen = in[10];
	o->marked = in[11];
	*tag = siphash_load(in + 12);
	return o->type == PROBOSCIS_PROBE || o->type == PROBOSCIS_REPORT;
}

#endif /* EVENKEEL_ALGO_PROBOSCIS_PROBOSCIS_H */
