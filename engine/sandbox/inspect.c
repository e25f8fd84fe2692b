/*
 * The inspect op: one sandbox as it is now, or why it is not there any more. Called by request.c.
 * Everything is read when asked.
 */
#include <errno.h>
#include <string.h>

#include "engine/sandbox/outflow.h"
#include "engine/sandbox/ended.h"
#include "engine/image/image.h"
#include "engine/integrity/integrity.h"
#include "engine/policy/policies.h"
#include "engine/request/request.h"
#include "engine/sandbox/sandbox.h"
#include "engine/shard.h"
#include "engine/tenant/tenancy.h"
#include "engine/sandbox/usage.h"

struct answer {
	struct dsec_wire_inspect body;
	char texts[GUARD_POLICY_NAME_MAX + IMAGE_NAMES_MAX + HOSTNAME_BYTES_MAX + USER_BYTES_MAX +
		   LABEL_BYTES_MAX + DSEC_PHASE_NAME_BYTES_MAX];
	uint32_t bytes;
};

static struct dsec_wire_ref answer_add(struct answer *answer, const void *text, uint32_t bytes)
{
	struct dsec_wire_ref ref = { answer->bytes, bytes };

	if (bytes)
		memcpy((char *)answer + answer->bytes, text, bytes);
	answer->bytes += bytes;
	return ref;
}

static void answer_describe(struct answer *answer, const struct sandbox *sandbox)
{
	const uint64_t now_ns = io_now_ns(sandbox->shard->io), ms = 1000000;
	struct dsec_wire_ref labels;

	answer->body = (struct dsec_wire_inspect){
		.size = sizeof answer->body,
		.state = sandbox->state,
		.id = sandbox->id,
		.cause = sandbox->cause,
		.age_ms = (now_ns - sandbox->created_ns) / ms,
		.idle_ms = sandbox->exec_count ? 0 : (now_ns - sandbox->lifetime.used_ns) / ms,
		.ttl_ms = sandbox_ttl_ms(sandbox),
		.execs_running = sandbox->exec_count,
		.execs_total = sandbox->exec_next - 1,
		.settings = sandbox_settings(sandbox),
		.tainted = integrity_taint(sandbox),
		.phase_version = sandbox->phase.version,
		.fork_of = sandbox->fork_of,
	};
	answer->bytes = sizeof answer->body;
	if (sandbox->image)
		answer->body.image = answer_add(answer, sandbox_image_name(sandbox),
						(uint32_t)strlen(sandbox_image_name(sandbox)));
	answer->body.hostname =
		answer_add(answer, sandbox->hostname, (uint32_t)strlen(sandbox->hostname));
	answer->body.user = answer_add(answer, sandbox->user, (uint32_t)strlen(sandbox->user));
	if (sandbox->policy)
		answer->body.policy = answer_add(answer, sandbox->policy->guard.name,
						 (uint32_t)strlen(sandbox->policy->guard.name));
	answer->body.phase =
		answer_add(answer, sandbox->phase.name, (uint32_t)strlen(sandbox->phase.name));
	labels = answer_add(answer, sandbox->labels.bytes, sandbox->labels.byte_count);
	answer->body.labels =
		(struct dsec_wire_items){ labels.at, labels.bytes, sandbox->labels.count, 0 };
}

static void answer_send(struct part *part, const struct answer *answer)
{
	struct emission e = { .kind = DSEC_EV_DONE,
			      .subject = answer->body.id,
			      .body = answer,
			      .bytes = answer->bytes };

	part_end(part, NULL, &e);
}

static const struct box_usage nothing_known = {
	.cpu_us = UINT64_MAX,
	.memory_bytes = UINT64_MAX,
	.memory_peak_bytes = UINT64_MAX,
	.disk_bytes = UINT64_MAX,
	.inodes = UINT64_MAX,
	.io_read_bytes = UINT64_MAX,
	.io_written_bytes = UINT64_MAX,
};

static void inspect_read(struct part *part, struct sandbox *sandbox, const struct box_usage *usage,
			 int error)
{
	struct answer answer;

	integrity_settle(sandbox);
	if (error)
		usage = &nothing_known;
	answer_describe(&answer, sandbox);
	answer.body.processes = usage->processes;
	answer.body.cpu_us = usage->cpu_us;
	answer.body.memory_bytes = usage->memory_bytes;
	answer.body.memory_peak_bytes = usage->memory_peak_bytes;
	answer.body.disk_bytes = usage->disk_bytes;
	answer.body.inodes = usage->inodes;
	answer.body.oom_kills = usage->oom_kills;
	outflow_read_places(sandbox, &answer.body.egress);
	answer_send(part, &answer);
}

static void inspect_ended(struct part *part, const struct ended *ended)
{
	struct answer answer = { .body = { .size = sizeof answer.body,
					   .state = DSEC_STATE_ENDED,
					   .id = ended->id,
					   .cause = ended->cause,
					   .ttl_ms = UINT64_MAX,
					   .tainted = ended->tainted },
				 .bytes = sizeof answer.body };

	answer.body.ended_ms = (io_now_ns(part->shard->io) - ended->at_ns) / 1000000;
	answer_send(part, &answer);
}

void inspect_part(struct part *part)
{
	struct dsec_wire_id id = part->request->entry.subject;
	struct sandbox *sandbox = sandbox_of(part);
	const struct ended *ended = sandbox ? NULL : tenancy_ended(part, id);
	struct status absent = status_absent();

	if (ended)
		inspect_ended(part, ended);
	else if (!sandbox)
		part_end(part, &absent, NULL);
	else if (sandbox->state != DSEC_STATE_RUNNING ||
		 usage_read(sandbox, part, inspect_read) < 0)
		inspect_read(part, sandbox, &nothing_known, 0);
}
