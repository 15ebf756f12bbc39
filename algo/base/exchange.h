/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * How long a connection's exchanges take, as seen at a VM's port.
 *
 * An exchange begins with a connection's SYN; with the first new data after all was
 * acknowledged for EXCHANGE_IDLE_NS; or with the opener's data once the other end has
 * answered and all is acknowledged. It ends when all data of both ends is acknowledged,
 * for the last time before the next one begins. So a request with its answer is one, and
 * so is an upload. Only data and ACKs that the ends send count, not those that a host
 * makes for them.
 *
 * A connection first seen midway has no exchange before one of these signs.
 */
#ifndef EVENKEEL_ALGO_BASE_EXCHANGE_H
#define EVENKEEL_ALGO_BASE_EXCHANGE_H

#include "seq.h"
#include "time.h"

/* Longer than a delayed ACK, and than most VMs are off their cores. */
#define EXCHANGE_IDLE_NS 200000000ull
/* Data that comes again after such a silence was sent by a timer: RTO_MIN is 200 ms on
 * Linux, and clocks tick. */
#define EXCHANGE_TIMEOUT_NS 190000000ull

/* What one end has sent. */
struct exchange_way {
	u64 bytes; /* new data, of this exchange */
	u64 sent_ns; /* when data was last sent */
	u32 end; /* of the data sent */
	u32 acked; /* by the other end */
	u32 again; /* segments of this exchange that were sent before */
	u32 timeouts; /* those that a timer sent */
};

struct exchange {
	u64 begin_ns; /* 0: none has begun */
	u64 end_ns; /* since when all is acknowledged, 0: something is not */
	struct exchange_way way[2]; /* the VM's, and the other end's */
	u32 handshake_us; /* until the handshake's third segment; 0: was before this */
	u8 is_answered; /* the end that did not open the connection has sent data */
	u8 pad[3];
};

/* A segment. */
struct exchange_segment {
	u64 now_ns;
	u32 seq;
	u32 ack;
	u32 bytes;
	u8 way; /* 0: of the VM, 1: of the other end */
	u8 is_opener; /* whoever sends it has opened the connection */
	u8 has_ack;
	u8 pad;
};

static inline bool exchange_is_acked(const struct exchange *e)
{
	return !seq_before(e->way[0].acked, e->way[0].end) &&
	       !seq_before(e->way[1].acked, e->way[1].end);
}

/*
 * A connection's first segment that is neither SYN nor SYN-ACK. @syn_ns: when the SYN
 * passed, or 0 if the connection is first seen midway.
 */
static inline void exchange_open(struct exchange *e, const struct exchange_segment *s,
				 u64 syn_ns)
{
	u64 took_us = time_since(s->now_ns, syn_ns) / 1000;
	u8 way = s->way & 1;

	*e = (struct exchange){};
	e->way[way].end = s->seq;
	e->way[way].acked = s->seq;
	e->way[!way].end = s->ack;
	e->way[!way].acked = s->ack;
	e->end_ns = s->now_ns;
	if (!syn_ns)
		return;
	e->begin_ns = syn_ns;
	e->handshake_us = took_us > 0xffffffffu ? 0xffffffffu : (u32)took_us;
}

/* Has an exchange carried something, all of which has arrived? */
static inline bool exchange_is_complete(const struct exchange *e)
{
	return e->begin_ns && e->end_ns && (e->way[0].bytes || e->way[1].bytes);
}

/* Some of what it has carried has not arrived. */
static inline bool exchange_is_cut(const struct exchange *e)
{
	return e->begin_ns && !e->end_ns;
}

/* An ACK. */
static inline void exchange_ack(struct exchange *e, const struct exchange_segment *s)
{
	struct exchange_way *other = &e->way[!(s->way & 1)];

	/* A FIN takes one number beyond the data. */
	if (!s->has_ack || !seq_after(s->ack, other->acked) ||
	    seq_after(s->ack, other->end + 1))
		return;
	other->acked = s->ack;
	if (!e->end_ns && exchange_is_acked(e))
		e->end_ns = s->now_ns;
}

/* Does new data begin an exchange? */
static inline bool exchange_begins(const struct exchange *e,
				   const struct exchange_segment *s)
{
	/* A connection's first exchange began with its SYN, unless it was idle since. */
	return e->end_ns && (time_since(s->now_ns, e->end_ns) > EXCHANGE_IDLE_NS ||
			     (s->is_opener && e->is_answered));
}

/* Data that was sent before. A byte that was acknowledged already is a keepalive. */
static inline void exchange_again(struct exchange_way *own,
				  const struct exchange_segment *s)
{
	if (s->bytes <= 1 && !seq_after(s->seq + s->bytes, own->acked))
		return;
	own->again++;
	own->timeouts += time_since(s->now_ns, own->sent_ns) >= EXCHANGE_TIMEOUT_NS;
	own->sent_ns = s->now_ns;
}

/*
 * A segment passes.
 *
 * Return: true if it begins another exchange: then @done is the one before it, which may
 * be complete.
 */
static inline bool exchange_passes(struct exchange *e, const struct exchange_segment *s,
				   struct exchange *done)
{
	struct exchange_way *own = &e->way[s->way & 1];
	u32 end = s->seq + s->bytes;
	bool begins;

	exchange_ack(e, s);
	if (!s->bytes)
		return false;
	if (!seq_after(end, own->end)) {
		exchange_again(own, s);
		return false;
	}
	begins = exchange_begins(e, s);
	if (begins) {
		*done = *e;
		e->begin_ns = s->now_ns;
		e->handshake_us = 0;
		e->is_answered = 0;
		e->way[0].bytes = e->way[1].bytes = 0;
		e->way[0].again = e->way[1].again = 0;
		e->way[0].timeouts = e->way[1].timeouts = 0;
	}
	e->end_ns = 0;
	if (!s->is_opener)
		e->is_answered = 1;
	own->bytes += end - own->end;
	own->end = end;
	own->sent_ns = s->now_ns;
	return begins;
}

#endif /* EVENKEEL_ALGO_BASE_EXCHANGE_H */
