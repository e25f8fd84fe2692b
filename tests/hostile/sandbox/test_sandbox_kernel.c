/*
 * Sandboxes that reach for the kernel's machinery: capabilities, devices, BPF, the filter, the
 * layer that all share. Every attack says what worked; nothing may.
 */
#include <stdio.h>

#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"
#include "tests/root/engine/engine_image.h"

/* As root and as a user, without a network and with one. */
static void attack_fails(struct engine *e, const char *attack)
{
	static const char *const users[] = { "root", "agent" };

	for (int i = 0; i < 4; i++) {
		struct dsec_create_opts opts = create_opts(1);
		const struct command c = { .argv = { "attack", attack }, .user = users[i / 2] };

		opts.network = i % 2 ? DSEC_NETWORK_PRIVATE : DSEC_NETWORK_NONE;
		auto_made struct made made = create_run(e->d, &opts);

		if (!expect(made.created == 1))
			return;
		auto_ran struct ran ran = command_run(e->d, made.ids[0], &c);

		if (!expect(ran_says(&ran, "done\n"))) {
			const struct dsec_output *out = ran_output(&ran, 1);

			note("%s as %s: %.*s", attack, users[i / 2], out ? (int)out->head.bytes : 0,
			     out ? (const char *)out->head.data : "");
		}
		sandbox_end(e->d, made.ids[0]);
	}
}

static void dropped_capabilities_open_nothing_and_never_come_back(struct engine *e)
{
	attack_fails(e, "capabilities");
}

static void there_are_no_devices_but_the_fixed_ones(struct engine *e)
{
	attack_fails(e, "devices");
}

static void bpf_perf_and_tracing_are_out_of_reach(struct engine *e)
{
	attack_fails(e, "bpf");
}

static void a_tracer_gets_no_call_past_the_filter(struct engine *e)
{
	attack_fails(e, "filter");
}

static void the_layer_that_all_share_is_never_written(struct engine *e)
{
	const struct command write = { .argv = { "attack", "layer", "/etc/passwd" } };
	const struct command read = SH("head -c 5 /etc/passwd");
	struct dsec_id first = sandbox_make(e->d), second = sandbox_make(e->d), third;
	auto_ran struct ran wrote = command_run(e->d, first, &write);

	if (!expect(ran_says(&wrote, "done\n")))
		ran_note(&wrote);
	third = sandbox_make(e->d);
	auto_ran struct ran beside = command_run(e->d, second, &read);
	auto_ran struct ran after = command_run(e->d, third, &read);

	expect(ran_says(&beside, "root:") && ran_says(&after, "root:"));
	sandbox_end(e->d, first);
	sandbox_end(e->d, second);
	sandbox_end(e->d, third);
}

int main(int argc, char **argv)
{
	static const struct claim claims[] = {
		CLAIM(dropped_capabilities_open_nothing_and_never_come_back),
		CLAIM(there_are_no_devices_but_the_fixed_ones),
		CLAIM(bpf_perf_and_tracing_are_out_of_reach),
		CLAIM(a_tracer_gets_no_call_past_the_filter),
		CLAIM(the_layer_that_all_share_is_never_written),
	};
	const struct suite suites[] = { SUITE("kernel", claims) };

	image_add(ATTACK_PATH, "attack");
	return suites_main(argc, argv, suites, 1);
}
