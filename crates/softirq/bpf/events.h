/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Events for user space: answers, for the log, and requests for responses that are not published. They don't wake the
 * daemon, which polls the ring buffer several times a second. */
#pragma once

#include "memo.h"

static __always_inline void emit_event(void *event, __u32 len)
{
	if (bpf_ringbuf_output(&events, event, len, BPF_RB_NO_WAKEUP))
		count(reason_event_lost);
}

static __always_inline void emit_answered(struct scratch *scratch, const struct segment *segment,
					  const struct response *response, __u32 body_len)
{
	__u32 head_len = segment->payload_len;
	if (head_len > REQUEST_MAX)
		head_len = REQUEST_MAX;
	OPAQUE(head_len);
	scratch->event.when_ns = segment->now_ns;
	scratch->event.kind = EVENT_ANSWERED;
	scratch->event.head_len = head_len;
	scratch->event.status = response->status;
	scratch->event.body_len = body_len;
	scratch->event.tuple = segment->tuple;
	scratch->event.id = response->id;
	emit_event(&scratch->event, sizeof(scratch->event) + (head_len & (HEAD_SIZE - 1)));
}

/* Reports a request at its second occurrence, so that responses to one-off requests are not fetched. */
static __always_inline void emit_requested(struct scratch *scratch, __u32 key_len, __u64 hash, __u64 now_ns)
{
	__u32 index = hash & (ASKED_ENTRIES - 1), tag = hash >> 32;
	struct asked *slot = bpf_map_lookup_elem(&request_counts, &index);
	__u32 now = now_ns >> 30;
	if (!slot)
		return;
	if (slot->tag != tag) {
		slot->tag = tag;
		slot->not_before = 0;
		return;
	}
	if ((__s32)(now - slot->not_before) < 0)
		return;
	/* The request is not reported again for this long, so that the daemon can publish the response. */
	slot->not_before = now + 2;
	scratch->asked.hash = hash;
	scratch->asked.kind = EVENT_ASKED;
	scratch->asked.key_len = key_len;
	emit_event(&scratch->asked, sizeof(scratch->asked) + (key_len & (KEY_SIZE / 2 - 1)));
}
