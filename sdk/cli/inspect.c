/* `dsec inspect`: one sandbox, while it lives and afterwards. Called by main.c. */
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "sdk/cli/cleanup.h"
#include "sdk/cli/json.h"
#include "sdk/cli/select.h"
#include "sdk/cli/settings.h"
#include "sdk/cli/values.h"
#include "sdk/cli/verbs.h"

enum { FLOW_TEXT_BYTES = INET6_ADDRSTRLEN + 16 };

/* "192.0.2.1 tcp/443" */
static void flow_text(const struct dsec_flow *flow, char ret[static FLOW_TEXT_BYTES])
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	const bool is_v4 = !memcmp(flow->address, mapped, sizeof(mapped));
	char address[INET6_ADDRSTRLEN] = "";

	(void)inet_ntop(is_v4 ? AF_INET : AF_INET6, flow->address + (is_v4 ? sizeof(mapped) : 0),
			address, sizeof(address)); /* fits, as below */
	(void)snprintf(ret, FLOW_TEXT_BYTES, "%s %s/%u", address,
		       flow->protocol == IPPROTO_TCP ? "tcp" : "udp", flow->port);
}

/* As many as there are places for, whatever the engine says. */
static uint32_t flow_count(const struct dsec_egress *egress)
{
	const uint32_t room = sizeof(egress->flows) / sizeof(egress->flows[0]);

	return egress->flow_count < room ? egress->flow_count : room;
}

static json_t *egress_json(const struct dsec_egress *egress)
{
	json_t *object = json_object(), *flows = json_array();

	(void)json_object_set_new(object, "sent_bytes", json_amount(egress->sent_bytes));
	(void)json_object_set_new(object, "connections", json_amount(egress->connections));
	(void)json_object_set_new(object, "refused", json_amount(egress->refused));
	(void)json_object_set_new(object, "dropped", json_amount(egress->dropped));
	(void)json_object_set_new(object, "capped", json_amount(egress->capped));
	for (uint32_t at = 0; at < flow_count(egress); at++) {
		json_t *flow = json_object();
		char text[FLOW_TEXT_BYTES];

		flow_text(&egress->flows[at], text);
		(void)json_object_set_new(flow, "to", json_string(text));
		(void)json_object_set_new(flow, "bytes", json_amount(egress->flows[at].bytes));
		(void)json_object_set_new(flow, "rule", json_integer(egress->flows[at].rule));
		(void)json_array_append_new(flows, flow);
	}
	(void)json_object_set_new(object, "flows", flows);
	return object;
}

static void egress_show(const struct dsec_egress *egress)
{
	char text[FLOW_TEXT_BYTES], bytes[VALUE_TEXT_BYTES];

	if (!(egress->sent_bytes | egress->refused | egress->dropped | egress->capped))
		return;
	value_print_bytes(egress->sent_bytes, bytes);
	(void)printf("%-12s %s sent, %" PRIu64 " connections, %" PRIu64 " calls refused, %" PRIu64
		     " packets dropped, %" PRIu64 " capped\n",
		     "egress", bytes, egress->connections, egress->refused, egress->dropped,
		     egress->capped);
	for (uint32_t at = 0; at < flow_count(egress); at++) {
		flow_text(&egress->flows[at], text);
		value_print_bytes(egress->flows[at].bytes, bytes);
		(void)printf("%-12s %s to %s\n", "", bytes, text);
	}
}

static json_t *inspected_json(const struct dsec_inspected *seen)
{
	json_t *object = json_object();

	/* These fail on memory alone, and json_line() shows what there is. */
	(void)json_object_set_new(object, "id", json_id(seen->id));
	(void)json_object_set_new(object, "state", json_string(state_name(seen->state)));
	(void)json_object_set_new(object, "cause", json_string(cause_name(seen->cause)));
	integrity_add(object, seen->tainted);
	if (seen->state == DSEC_STATE_ENDED) {
		(void)json_object_set_new(object, "ended_ms", json_amount(seen->ended_ms));
		return object;
	}
	(void)json_add_bytes(object, "image", seen->image);
	fork_add(object, seen->fork_of);
	(void)json_add_bytes(object, "policy", seen->policy);
	phase_add(object, seen->phase, seen->phase_version);
	(void)json_add_bytes(object, "hostname", seen->hostname);
	(void)json_add_bytes(object, "user", seen->user);
	(void)json_object_set_new(object, "age_ms", json_amount(seen->age_ms));
	(void)json_object_set_new(object, "idle_ms", json_amount(seen->idle_ms));
	(void)json_object_set_new(object, "ttl_ms", json_amount(seen->ttl_ms));
	(void)json_object_set_new(object, "execs_running", json_amount(seen->execs_running));
	(void)json_object_set_new(object, "execs_total", json_amount(seen->execs_total));
	(void)json_object_set_new(object, "processes", json_integer(seen->processes));
	(void)json_object_set_new(object, "cpu_us", json_amount(seen->cpu_us));
	(void)json_object_set_new(object, "memory_now_bytes", json_amount(seen->memory_bytes));
	(void)json_object_set_new(object, "memory_peak_bytes",
				  json_amount(seen->memory_peak_bytes));
	(void)json_object_set_new(object, "disk_used_bytes", json_amount(seen->disk_bytes));
	(void)json_object_set_new(object, "inodes_used", json_amount(seen->inodes));
	(void)json_object_set_new(object, "oom_kills", json_amount(seen->oom_kills));
	(void)json_object_set_new(object, "egress", egress_json(&seen->egress));
	settings_add(object, &seen->settings);
	labels_add(object, seen->labels, seen->label_count);
	return object;
}

/* Whether stdout took it is told at the end, by main(). */
static void line_show(const char *name, const char *text)
{
	(void)printf("%-12s %s\n", name, text);
}

static void bytes_show(const char *name, uint64_t now, uint64_t limit)
{
	char used[VALUE_TEXT_BYTES], most[VALUE_TEXT_BYTES], text[3 * VALUE_TEXT_BYTES];

	value_print_bytes(now, used);
	value_print_bytes(limit, most);
	(void)snprintf(text, sizeof(text), "%s of %s", used, limit ? most : "no limit"); /* fits */
	line_show(name, text);
}

static void inodes_show(uint64_t now, uint64_t limit)
{
	char used[VALUE_TEXT_BYTES], text[3 * VALUE_TEXT_BYTES];

	(void)snprintf(used, sizeof(used), "%" PRIu64, now); /* fits, as below */
	(void)snprintf(text, sizeof(text), "%s of %" PRIu64, now == UINT64_MAX ? "-" : used, limit);
	line_show("inodes", text);
}

static void time_show(const char *name, uint64_t ms)
{
	char text[VALUE_TEXT_BYTES];

	value_print_ms(ms, text);
	line_show(name, text);
}

static void text_show(const char *name, struct dsec_bytes bytes)
{
	(void)printf("%-12s ", name);
	value_write(stdout, bytes);
	(void)fputc('\n', stdout);
}

static void limits_show(const struct dsec_created *s)
{
	char text[LIMITS_TEXT_BYTES];

	if (s->cpu_max_permille) {
		value_print_permille(s->cpu_max_permille, text);
		line_show("cpus", text);
	}
	if (s->cpu_weight)
		(void)printf("%-12s %u\n", "cpu-weight", s->cpu_weight);
	if (s->flags & DSEC_CREATE_SCHED_IDLE)
		line_show("sched-idle", "yes");
	if (s->io_bytes_per_s) {
		value_print_exact_bytes(s->io_bytes_per_s, text);
		line_show("io", text);
	}
	if (s->io_weight)
		(void)printf("%-12s %u\n", "io-weight", s->io_weight);
	if (s->processes_per_s)
		(void)printf("%-12s %u a second\n", "processes", s->processes_per_s);
	if (s->output_limit_bytes) {
		value_print_exact_bytes(s->output_limit_bytes, text);
		line_show("output-limit", text);
	}
	if (!s->unenforced)
		return;
	limits_text(s->unenforced, text);
	line_show("unenforced", text + 1);
}

static void network_show(const struct dsec_created *s)
{
	const char *lack = network_lack(s->network_why);

	(void)printf("%-12s %s%s%s (%s%s%s)\n", "network", network_name(s->network),
		     s->network_scope ? ", of one " : "",
		     s->network_scope ? network_scope_name(s->network_scope) : "",
		     network_why_name(s->network_why), lack ? ": " : "", lack ? lack : "");
}

static void policy_show(const struct dsec_inspected *seen)
{
	(void)printf("%-12s ", "policy");
	value_write(stdout, seen->policy);
	(void)printf(", version %u", seen->settings.policy);
	if (seen->settings.rules_unenforced)
		(void)printf(", %u rules held by nothing", seen->settings.rules_unenforced);
	(void)putchar('\n');
}

static void inspected_show(const struct dsec_inspected *seen)
{
	char integrity[INTEGRITY_TEXT_BYTES];
	char text[2 * VALUE_TEXT_BYTES];

	dsec_id_print(seen->id, text);
	line_show("id", text);
	line_show("state", state_name(seen->state));
	if (seen->cause)
		line_show("cause", cause_name(seen->cause));
	integrity_text(seen->tainted, integrity);
	line_show("integrity", integrity);
	if (seen->state == DSEC_STATE_ENDED) {
		time_show("ended ago", seen->ended_ms);
		return;
	}
	text_show("image", seen->image);
	if (fork_is(seen->fork_of)) {
		dsec_id_print(seen->fork_of, text);
		line_show("fork of", text);
	}
	policy_show(seen);
	(void)printf("%-12s %.*s%s%" PRIu64 "\n", "phase", (int)seen->phase.bytes,
		     (const char *)seen->phase.data, seen->phase.bytes ? ", version " : "version ",
		     seen->phase_version);
	network_show(&seen->settings);
	time_show("age", seen->age_ms);
	time_show("idle", seen->idle_ms);
	time_show("ttl left", seen->ttl_ms);
	(void)printf("%-12s %" PRIu64 " running, %" PRIu64 " in all\n", "execs",
		     seen->execs_running, seen->execs_total);
	(void)printf("%-12s %u of %u\n", "processes", seen->processes, seen->settings.pids_max);
	bytes_show("memory", seen->memory_bytes, seen->settings.memory_bytes);
	bytes_show("disk", seen->disk_bytes, seen->settings.disk_bytes);
	inodes_show(seen->inodes, seen->settings.inodes);
	limits_show(&seen->settings);
	egress_show(&seen->egress);
	for (uint32_t at = 0; at < seen->label_count; at++) {
		(void)printf("%-12s ", at ? "" : "labels");
		value_write(stdout, seen->labels[at].key);
		(void)fputc('=', stdout);
		value_write(stdout, seen->labels[at].value);
		(void)fputc('\n', stdout);
	}
}

static void inspected_tell(void *state, const struct dsec_event *event)
{
	const struct options *options = state;
	auto_json json_t *json = NULL;

	if (!event->body)
		return;
	if (!options->json) {
		inspected_show(event->body);
		return;
	}
	json = inspected_json(event->body);
	(void)json_line(stdout, json); /* told at the end, by main() */
}

int verb_inspect(const struct options *options)
{
	struct session session = { .options = options };
	int status = EXIT_TROUBLE;
	struct dsec_id id;

	if (options->argument_count != 1) {
		status = session_refuse(&session, "inspect wants one id");
	} else if (session_open(&session, false) == 0 &&
		   select_one(&session, options->arguments[0], &id) == 0) {
		struct dsec_call call = session_call(&session);

		if (session_events(&session, dsec_inspect(session.d, &call, id), "inspect",
				   inspected_tell, (void *)options) == 0)
			status = 0;
	}
	return session_end(&session, status);
}
