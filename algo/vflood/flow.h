/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * vFlood's flow on the host: settings, state, and its handshake (vflood.h).
 *
 * Sequence numbers are those of the VM's data. A segment is f->mss bytes; a packet of
 * several counts as that many.
 */
#ifndef EVENKEEL_ALGO_VFLOOD_FLOW_H
#define EVENKEEL_ALGO_VFLOOD_FLOW_H

#include "../congestion/congestion.h"
#include "../base/seq.h"
#include "../base/window.h"

#define VFLOOD_DUP_ACKS 3 /* RFC 5681 §3.2 */
/* A packet leaves whole if it is no more than a fourth of the window or of what is out.
 */
#define VFLOOD_WHOLE_PART 4
#define VFLOOD_AFTER_LOSS 2 /* windows that a flow may hold once it has had a loss */
#define VFLOOD_ALPHA_ONE 16 /* alpha is in sixteenths */
/* Linux's least timeout, for a window that was not used. */
#define VFLOOD_IDLE_US 200000
#define VFLOOD_FLOOD_SEGMENTS 512 /* the guest's window where nothing was granted */
#define VFLOOD_LEAST_PACKET 2 /* segments: tcp_min_tso_segs in Linux */

/*
 * A flow's states (vFlood Fig. 3):
 *
 *              more held than its share
 *     ACTIVE ----------------------------> NO_BUFFER
 *      ^  |  <----------------------------     |
 *      |  |      half of the share is free     |
 *      |  |                                    |
 *      |  | loss                          loss |
 *      |  v                                    |
 *     PACKET_LOSS <----------------------------+
 *
 * PACKET_LOSS ends when what was out at the loss is acknowledged, or the loss proves
 * spurious.
 */
enum vflood_state {
	VFLOOD_ACTIVE, /* the guest may flood */
	VFLOOD_NO_BUFFER, /* it may not: the flow's share of the buffer is used up */
	VFLOOD_PACKET_LOSS, /* it may not: it repairs a loss */
};

/* Who may hold how much (vFlood §3.3). */
enum vflood_policy {
	VFLOOD_POLICY_NONE, /* whatever is free */
	VFLOOD_POLICY_FAIR, /* vFlood eq. 1 with the same alpha for all */
	VFLOOD_POLICY_PRIORITY, /* with a larger one for flows of low RTT */
};

enum vflood_verdict {
	VFLOOD_PASS, /* send it */
	VFLOOD_HOLD, /* put it at the end of the flow's queue, or leave it there */
	VFLOOD_DROP, /* needless: it is held already, or has arrived; or there is no room
		      */
};

struct vflood_settings {
	u32 buffer_segments; /* B, for each VM */
	u32 initial_window; /* segments */
	u32 low_rtt_us; /* flows below are of low RTT */
	u32 alpha; /* of VFLOOD_ALPHA_ONE */
	u32 alpha_low_rtt; /* policy priority: of flows of low RTT */
	u32 policy; /* enum vflood_policy */
	u32 congestion; /* enum congestion_kind */
};

/* A VM's buffer. */
struct vflood_vm {
	u32 held_segments; /* Q: in the queues of all its flows */
	u32 promised_segments; /* granted to its flows, and not yet come */
};

/* What an ACK from the receiver says. */
struct vflood_ack {
	u32 ack;
	u32 sacked_end; /* the highest right edge of its SACK blocks */
	u32 sacked_segments; /* that these tell of, beyond the ACK's number */
	u16 window; /* the field */
	bool is_pure; /* it carries no data, and does not report data that came twice
		       * (vflood_is_dsack()) */
	bool has_sack;
	bool is_older; /* vflood_is_older() */
	u32 came_twice_segments; /* vflood_came_twice() */
};

#define VFLOOD_SEEN_VM (1u << 0) /* the VM's SYN */
#define VFLOOD_SEEN_PEER (1u << 1) /* the other end's */
#define VFLOOD_SEEN_BOTH (VFLOOD_SEEN_VM | VFLOOD_SEEN_PEER)
#define VFLOOD_SCALED                                                                    \
	(1u << 2) /* an ACK after the handshake has come: windows are scaled */
#define VFLOOD_LIMITED (1u << 3) /* the congestion window kept something back */
#define VFLOOD_TIMED_OUT (1u << 4) /* a timeout, not duplicate ACKs, told of the loss */
#define VFLOOD_TIMING (1u << 5) /* a segment's RTT is being measured */
#define VFLOOD_REFUSED (1u << 6) /* data was refused, see refused_start */
#define VFLOOD_ACK_SENT (1u << 7) /* ack_sent is known */
#define VFLOOD_SACKED (1u << 8) /* the last ACK had SACK blocks: something is missing */
#define VFLOOD_HEAD_AGAIN (1u << 9) /* the VM has sent the segment at f->head again */
#define VFLOOD_LOSSY (1u << 10) /* there was a loss */
#define VFLOOD_LOSSY_BEFORE (1u << 11) /* before the last one too */
#define VFLOOD_HAS_SACK (1u << 12) /* both ends have permitted SACK */
#define VFLOOD_STAMPED (1u << 13) /* ts_val is known */
#define VFLOOD_AGAIN (1u << 14) /* sent again and not acknowledged, see again_end */
#define VFLOOD_AGAIN_STAMPED (1u << 15) /* again_ts is known */
#define VFLOOD_DOUBT (1u << 16) /* no ACK has told yet whether the loss was one */
#define VFLOOD_MAY_UNDO (1u << 17) /* the last loss's window can be given back */
/* Up to vm_recover, the VM may take for lost what is not. */
#define VFLOOD_UNDONE (1u << 18)
#define VFLOOD_LEFT (1u << 19) /* something has left since the last ACK */
/* The receiver has no room for what is held, and has said so again to a window probe. */
#define VFLOOD_CLOSED (1u << 20)

/* Data of a packet: its first sequence number, and the one behind its last. */
struct vflood_range {
	u32 seq;
	u32 end;
};

struct vflood_flow {
	struct congestion congestion; /* cong_win_drv */
	struct congestion_before before; /* before the last loss, with VFLOOD_MAY_UNDO */
	u64 timed_us; /* when the timed segment was sent */
	u64 sent_us; /* when anything last was */
	u64 needless_us; /* when data that had arrived last passed again */
	u64 fresh_us[2]; /* what begins at fresh_start was let out then or later */
	u64 again_us; /* when again_segments[1] began to be counted */
	u64 advanced_us; /* when new data was last acknowledged */
	u32 timed_end;
	u32 snd_una; /* highest ACK of the receiver */
	u32 snd_nxt; /* end of what was let out */
	u32 vm_end; /* end of what the VM has sent; what lies between is held */
	u32 edge; /* right edge of the receiver's window */
	u32 granted; /* right edge that the VM was told */
	u32 ack_sent; /* highest ACK of the VM's that has gone out */
	u32 refused_start; /* data for which there was no room */
	u32 refused_end;
	u32 recover; /* the loss is repaired when this is acknowledged */
	u32 vm_recover; /* for the VM, which takes what is held for sent */
	u32 sacked_end; /* highest right edge of SACK blocks, or snd_una */
	u32 sacked_segments; /* that the last ACK's SACK blocks tell of */
	u32 fresh_start[2];
	/* Sent again while a loss is repaired, and not acknowledged: in the round trip
	 * before, and in this one. */
	u32 again_segments[2];
	u32 head;
	u32 ts_val; /* newest timestamp of the VM's, with which all leaves */
	u32 again_ts; /* of what was sent again first, and is not acknowledged */
	u32 again_first_end; /* end of that */
	u32 again_end; /* end of all that was sent again and is not acknowledged */
	u32 undo_start; /* snd_una when the last loss was judged */
	u32 unproven_segments; /* sent again since, and not reported to have come twice */
	u32 round_end; /* a round trip ends when this is acknowledged */
	u32 mss; /* payload of a full segment */
	u32 acked_bytes; /* of a segment that is not acknowledged as a whole */
	u32 held_segments; /* Q_i */
	u32 promised_segments;
	u32 dup_acks; /* segments that duplicate ACKs tell of */
	u32 burst_segments; /* may leave before the next ACK */
	u32 srtt_us;
	u32 min_rtt_us; /* 0: none yet */
	u32 flags;
	u16 syn_window; /* the other end's, unscaled */
	u8 scale;
	u8 state; /* enum vflood_state */
};

/* Valid only once the other end's SYN was seen, which tells the MSS. */
static inline u32 vflood_segments(const struct vflood_flow *f, u32 bytes)
{
	return bytes / f->mss + (bytes % f->mss != 0);
}

/* Both SYNs were seen: a flow first seen in the middle passes. */
static inline bool vflood_is_managed(const struct vflood_flow *f)
{
	return (f->flags & VFLOOD_SEEN_BOTH) == VFLOOD_SEEN_BOTH;
}

/* Is refused data still missing, which the VM has to send again? */
static inline bool vflood_lacks_refused(const struct vflood_flow *f)
{
	return f->flags & VFLOOD_REFUSED && seq_after(f->refused_end, f->snd_una);
}

/* pkt_out_drv: let out and not acknowledged. */
static inline u32 vflood_out_segments(const struct vflood_flow *f)
{
	return vflood_segments(f, f->snd_nxt - f->snd_una);
}

static inline void vflood_rtt(struct vflood_flow *f, u64 rtt_us)
{
	u32 rtt = rtt_us < (1u << 30) ? (u32)rtt_us : 1u << 30;

	if (!rtt)
		rtt = 1;
	f->srtt_us = f->srtt_us ? f->srtt_us - (f->srtt_us >> 3) + (rtt >> 3) : rtt;
	if (!f->srtt_us)
		f->srtt_us = 1;
	if (!f->min_rtt_us || rtt < f->min_rtt_us)
		f->min_rtt_us = rtt;
	congestion_rtt(&f->congestion, rtt);
}

/**
 * vflood_vm_syn() - the VM sends a SYN or SYN-ACK
 * @seq: its sequence number
 *
 * Sent again, it only spoils the measurement of the RTT.
 */
static inline void vflood_vm_syn(struct vflood_flow *f, const struct vflood_settings *s,
				 u32 seq, u64 now_us)
{
	if (f->flags & VFLOOD_SEEN_VM && f->snd_una == seq + 1) {
		f->flags &= ~VFLOOD_TIMING;
		return;
	}
	congestion_begin(&f->congestion, s->congestion, s->initial_window);
	f->snd_una = seq + 1;
	f->snd_nxt = seq + 1;
	f->vm_end = seq + 1;
	f->granted = seq + 1;
	f->round_end = seq + 1;
	f->sacked_end = seq + 1;
	f->edge = seq + 1 + f->syn_window;
	f->burst_segments = f->congestion.window.cwnd;
	f->timed_us = now_us;
	f->timed_end = seq + 1;
	f->flags |= VFLOOD_SEEN_VM | VFLOOD_TIMING;
}

/**
 * vflood_peer_syn() - the other end's SYN or SYN-ACK comes
 * @window: its window, never scaled here
 * @scale: of its later windows; 0 if one of the two does not scale
 * @mss: payload of a full segment of the VM's, options deducted
 */
static inline void vflood_peer_syn(struct vflood_flow *f, u16 window, u8 scale, u32 mss,
				   u64 now_us)
{
	if (f->flags & VFLOOD_SCALED)
		return;
	f->syn_window = window;
	f->scale = window_scale(scale);
	f->mss = mss ? mss : WINDOW_DEFAULT_MSS;
	if (f->flags & VFLOOD_SEEN_VM) {
		f->edge = f->snd_una + window;
		if (f->flags & VFLOOD_TIMING)
			vflood_rtt(f, now_us > f->timed_us ? now_us - f->timed_us : 1);
		f->flags &= ~VFLOOD_TIMING;
	}
	f->flags |= VFLOOD_SEEN_PEER;
}

#endif /* EVENKEEL_ALGO_VFLOOD_FLOW_H */
