/* What became of calls. Called by call.c. */
#include "sdk/cli/call_show.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sdk/cli/cleanup.h"
#include "sdk/cli/json.h"
#include "sdk/cli/values.h"

static const char *verdict_name(uint32_t verdict)
{
	static const char *const names[] = {
		[DSEC_VERDICT_OK] = "ok", [DSEC_VERDICT_TLE] = "tle", [DSEC_VERDICT_MLE] = "mle",
		[DSEC_VERDICT_RE] = "re", [DSEC_VERDICT_OLE] = "ole", [DSEC_VERDICT_IE] = "ie"
	};

	return verdict < sizeof(names) / sizeof(names[0]) && names[verdict] ? names[verdict] : "ie";
}

void call_take(struct call_shown *call, const struct dsec_event *event)
{
	const uint32_t which = event->stream - 1;

	if (event->kind == DSEC_EV_DONE) {
		call->is_over = true;
		call->status = event->status;
		if (event->body)
			call->result = *(const struct dsec_called *)event->body;
		return;
	}
	call->is_cut |= event->kind == DSEC_EV_GAP; /* from the record, which has not all of it */
	if (event->kind != DSEC_EV_DATA || which > 1)
		return;
	char *grown = realloc(call->bytes[which], call->counts[which] + event->bytes);

	if (!grown) {
		call->is_cut = true;
		return;
	}
	memcpy(grown + call->counts[which], event->data, event->bytes);
	call->bytes[which] = grown;
	call->counts[which] += event->bytes;
}

static struct dsec_bytes output_of(const struct call_shown *call, int which)
{
	return (struct dsec_bytes){ call->bytes[which], call->counts[which] };
}

static json_t *output_json(const struct call_shown *call, int which)
{
	json_t *object = json_object();
	const bool truncated = call->is_cut || call->result.verdict == DSEC_VERDICT_OLE;

	/* These fail on memory alone, and json_line() shows what there is. */
	(void)json_add_bytes(object, "text", output_of(call, which));
	(void)json_object_set_new(object, "bytes", json_amount(call->counts[which]));
	(void)json_object_set_new(object, "truncated", json_boolean(truncated));
	return object;
}

static json_t *ms_json(uint64_t us)
{
	return us > INT64_MAX ? json_null() : json_real((double)us / 1000);
}

static json_t *call_json(const struct call_shown *call, uint32_t index)
{
	const struct dsec_called *r = &call->result;
	json_t *object = json_status(&call->status);
	const bool has_code = r->reason == DSEC_EXIT || r->reason == DSEC_NOT_STARTED;

	if (index != UINT32_MAX)
		(void)json_object_set_new(object, "index", json_integer(index));
	(void)json_object_set_new(object, "verdict",
				  r->size ? json_string(verdict_name(r->verdict)) : json_null());
	if (!r->size)
		return object;
	(void)json_object_set_new(object, "reason", json_string(reason_name(r->reason)));
	(void)json_object_set_new(object, "code",
				  has_code ? json_integer(r->exit_code) : json_null());
	(void)json_object_set_new(object, "signal",
				  r->signal ? json_integer(r->signal) : json_null());
	(void)json_object_set_new(object, "cpu_ms", ms_json(r->cpu_us));
	(void)json_object_set_new(object, "wall_ms", ms_json(r->wall_us));
	(void)json_object_set_new(object, "memory_peak_bytes", json_amount(r->memory_peak_bytes));
	(void)json_object_set_new(object, "stdout", output_json(call, 0));
	(void)json_object_set_new(object, "stderr", output_json(call, 1));
	return object;
}

/* As run says it: the program's, 124 for time, 137 for what was killed. */
static int call_exit_status(const struct call_shown *call)
{
	const struct dsec_called *r = &call->result;

	if (!r->size)
		return call->status.code == DSEC_DEADLINE ? EXIT_TIMED_OUT : EXIT_TROUBLE;
	switch (r->verdict) {
	case DSEC_VERDICT_OK:
		return 0;
	case DSEC_VERDICT_TLE:
		return EXIT_TIMED_OUT;
	case DSEC_VERDICT_MLE:
	case DSEC_VERDICT_OLE:
		return 128 + 9;
	case DSEC_VERDICT_RE:
		return r->signal ? 128 + (r->signal & 0x7f) : r->exit_code & 0xff;
	default:
		return r->reason == DSEC_NOT_STARTED ? r->exit_code : EXIT_TROUBLE;
	}
}

/* Whether it got out is told at the end, by main(). */
static void output_write(const struct call_shown *call, int which, FILE *file)
{
	if (call->counts[which])
		(void)fwrite(call->bytes[which], 1, call->counts[which], file);
	(void)fflush(file);
}

static void verdict_tell(const struct options *options, const struct call_shown *call,
			 const char *which)
{
	const struct dsec_called *r = &call->result;
	char peak[VALUE_TEXT_BYTES], cpu[VALUE_TEXT_BYTES] = "?";

	value_print_bytes(r->memory_peak_bytes, peak);
	if (r->cpu_us != UINT64_MAX)
		(void)snprintf(cpu, sizeof(cpu), "%" PRIu64, r->cpu_us / 1000); /* fits */
	report_note(options, "%s%s: %s ms of CPU time in %" PRIu64 " ms, peak %s", which,
		    verdict_name(r->verdict), cpu, r->wall_us / 1000, peak);
}

int call_show(struct session *session, struct call_shown *call, uint32_t index)
{
	auto_json json_t *json = call_json(call, index);
	const int status = call_exit_status(call);
	char which[32] = "";

	if (index != UINT32_MAX)
		(void)snprintf(which, sizeof(which), "%" PRIu32 ": ", index); /* fits */
	session_tell(session, json);
	if (!session->options->json) {
		output_write(call, 0, stdout);
		output_write(call, 1, stderr);
	}
	if (call->is_over && call->status.code != DSEC_OK)
		(void)session_fail(session, "call", &call->status);
	else if (call->result.verdict != DSEC_VERDICT_OK && !session->options->json)
		verdict_tell(session->options, call, which);
	free(call->bytes[0]);
	free(call->bytes[1]);
	*call = (struct call_shown){ 0 };
	return status;
}
