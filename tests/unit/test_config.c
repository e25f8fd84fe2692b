/* Tests of config.c and config_fit.c: options, defaults, and machines that hold less. */
#include "engine/config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <criterion/redirect.h>

#include "dsec/types.h"
#include "engine/base/log.h"
#include "engine/config_fit.h"
#include "engine/config_tenant.h"

enum { WORDS_MAX = 8, MESSAGE_BYTES = 4096 };

/* A command line as one text, and what parsing it gives. */
struct line {
	struct config config;
	enum config_mode mode;
	int result;
	char *words[WORDS_MAX + 1];
	char text[256];
};

static void line_parse(struct line *line, const char *text)
{
	int count = 1;

	memset(line, 0, sizeof(*line));
	cr_assert_eq(config_default(&line->config), 0);
	snprintf(line->text, sizeof(line->text), "%s", text);
	line->words[0] = (char *)"dsecd";
	for (char *word = strtok(line->text, " "); word; word = strtok(NULL, " ")) {
		cr_assert_lt(count, WORDS_MAX);
		line->words[count++] = word;
	}
	line->result = config_parse(&line->config, count, line->words, &line->mode);
}

/* Standard error so far. */
static void told(char *ret_text)
{
	FILE *file;
	size_t n;

	fflush(stderr);
	file = cr_get_redirected_stderr();
	n = fread(ret_text, 1, MESSAGE_BYTES - 1, file);
	ret_text[n] = '\0';
}

Test(config, defaults_are_those_of_the_text)
{
	struct line line;

	line_parse(&line, "");
	cr_assert_eq(line.result, 0);
	cr_assert_eq(line.mode, CONFIG_RUN);
	cr_assert_str_eq(line.config.instance, "main");
	cr_assert_str_eq(line.config.socket_path, "/run/dsec.sock");
	cr_assert_eq(line.config.sandboxes_max, 8192);
	cr_assert_eq(line.config.launchers, 3);
	cr_assert_eq(line.config.disk_bytes, 1 << 30);
	cr_assert_eq(line.config.ready_fd, -1);
	cr_assert_eq(line.config.lifeline_fd, -1);
	cr_assert(line.config.pin_shards);
	cr_assert_eq(line.config.network, CONFIG_NETWORK_ANY);
	cr_assert_eq(line.config.shards, (uint32_t)sysconf(_SC_NPROCESSORS_ONLN));
	cr_assert_str_eq(strrchr(line.config.launcher_path, '/'), "/dsec-launcher");
	config_done(&line.config);
}

Test(config, socket_of_another_instance_is_named_after_it_wherever_the_name_stands)
{
	static const char *const texts[] = { "--instance a-1", "--ttl 60 --instance=a-1" };

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct line line;

		line_parse(&line, texts[i]);
		cr_assert_eq(line.result, 0);
		cr_assert_str_eq(line.config.socket_path, "/run/dsec/a-1.sock");
		config_done(&line.config);
	}
}

Test(config, given_socket_wins_over_the_instances)
{
	struct line line;

	line_parse(&line, "--socket /tmp/x.sock --instance a");
	cr_assert_eq(line.result, 0);
	cr_assert_str_eq(line.config.socket_path, "/tmp/x.sock");
	config_done(&line.config);
}

Test(config, bytes_take_k_m_g_t_and_times_s_m_h_d)
{
	static const struct {
		const char *text;
		uint64_t disk_bytes;
		uint32_t ttl_s;
	} cases[] = {
		{ "--disk=1048577 --ttl=5", 1048577, 5 },
		{ "--disk=2048K --ttl=5s", 2048ull << 10, 5 },
		{ "--disk=3M --ttl=2m", 3ull << 20, 120 },
		{ "--disk=5G --ttl=2h", 5ull << 30, 7200 },
		{ "--disk=1T --ttl=30d", 1ull << 40, 30 * 86400 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct line line;

		line_parse(&line, cases[i].text);
		cr_assert_eq(line.result, 0, "%s", cases[i].text);
		cr_assert_eq(line.config.disk_bytes, cases[i].disk_bytes, "%s", cases[i].text);
		cr_assert_eq(line.config.ttl_default_s, cases[i].ttl_s, "%s", cases[i].text);
		config_done(&line.config);
	}
}

struct refused {
	char text[96], named[24];
};

ParameterizedTestParameters(config, refusal_names_the_option)
{
	static struct refused cases[] = {
		{ "--shards 0", "--shards" },
		{ "--shards 257", "--shards" },
		{ "--shards two", "--shards" },
		{ "--shards -1", "--shards" },
		{ "--shards 2x", "--shards" },
		{ "--shards", "--shards" },
		{ "--shards=", "--shards" },
		{ "--sandboxes-max 16385", "--sandboxes-max" },
		{ "--sandboxes-max 99999999999999999999", "--sandboxes-max" },
		{ "--disk 1KK", "--disk" },
		{ "--disk 99999999999T", "--disk" },
		{ "--disk 1", "--disk" },
		{ "--ttl 31d", "--ttl" },
		{ "--ttl 5w", "--ttl" },
		{ "--instance Main", "--instance" },
		{ "--instance a/b", "--instance" },
		{ "--instance=", "--instance" },
		{ "--instance ..", "--instance" },
		{ "--instance uids", "--instance" },
		{ "--instance aaaaaaaaaaaaaaaaaaaaaaaaa", "--instance" },
		{ "--socket=", "--socket" },
		{ "--socket-mode 800", "--socket-mode" },
		{ "--socket-mode 1777", "--socket-mode" },
		{ "--log-level loud", "--log-level" },
		{ "--network private", "--network" },
		{ "--network non", "--network" },
		{ "--network none|shared", "--network" },
		{ "--shared-scope world", "--shared-scope" },
		{ "--ready-fd 4000", "--ready-fd" },
		{ "--lifeline no", "--lifeline" },
		{ "--no-pin=1", "--no-pin" },
		{ "--check=1", "--check" },
		{ "--shard 1", "--shard" },
		{ "-h", "-h" },
		{ "now", "now" },
		{ "--", "--" },
	};

	return cr_make_param_array(struct refused, cases, sizeof(cases) / sizeof(cases[0]));
}

ParameterizedTest(struct refused *c, config, refusal_names_the_option, .init = cr_redirect_stderr)
{
	char message[MESSAGE_BYTES];
	struct line line;

	line_parse(&line, c->text);
	cr_assert_eq(line.result, -EINVAL, "%s", c->text);
	told(message);
	cr_assert_not_null(strstr(message, c->named), "%s: %s", c->text, message);
	cr_assert_eq(strchr(message, '\n'), message + strlen(message) - 1, "one line: %s", message);
	config_done(&line.config);
}

Test(config, words_are_numbers_in_their_order)
{
	struct line line;

	line_parse(&line, "--network none --shared-scope=node --log-level error");
	cr_assert_eq(line.result, 0);
	cr_assert_eq(line.config.network, CONFIG_NETWORK_NONE);
	cr_assert_eq(line.config.shared_scope, DSEC_NETWORK_SCOPE_NODE);
	cr_assert_eq(line.config.log_level, LOG_ERROR);
	config_done(&line.config);
	line_parse(&line, "--network shared --log-level debug");
	cr_assert_eq(line.result, 0);
	cr_assert_eq(line.config.network, CONFIG_NETWORK_SHARED);
	cr_assert_eq(line.config.log_level, LOG_DEBUG);
	config_done(&line.config);
}

Test(config, names_at_the_edge_of_the_rule_are_taken)
{
	static const char *const texts[] = { "--instance a", "--instance aaaaaaaaaaaaaaaaaaaaaaaa",
					     "--instance 0-9", "--instance=-" };

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct line line;

		line_parse(&line, texts[i]);
		cr_assert_eq(line.result, 0, "%s", texts[i]);
		config_done(&line.config);
	}
}

Test(config, path_of_a_socket_fits_in_its_address_or_is_refused)
{
	char text[160] = "--socket /";
	struct line line;

	memset(text + strlen(text), 'p', 106);
	line_parse(&line, text);
	cr_assert_eq(line.result, 0, "107 bytes");
	config_done(&line.config);
	strcat(text, "p");
	line_parse(&line, text);
	cr_assert_eq(line.result, -EINVAL, "108 bytes");
	config_done(&line.config);
}

Test(config, descriptors_become_close_on_exec)
{
	int ends[2];
	char text[64];
	struct line line;

	cr_assert_eq(pipe(ends), 0);
	snprintf(text, sizeof(text), "--ready-fd %d --lifeline=%d", ends[1], ends[0]);
	line_parse(&line, text);
	cr_assert_eq(line.result, 0);
	cr_assert_eq(line.config.ready_fd, ends[1]);
	cr_assert_eq(line.config.lifeline_fd, ends[0]);
	cr_assert_eq(fcntl(ends[0], F_GETFD), FD_CLOEXEC);
	cr_assert_eq(fcntl(ends[1], F_GETFD), FD_CLOEXEC);
	config_done(&line.config);
}

Test(config, questions_are_modes_of_their_own)
{
	static const struct {
		const char *text;
		enum config_mode mode;
	} cases[] = {
		{ "--check --json", CONFIG_CHECK },
		{ "--uninstall --all", CONFIG_UNINSTALL },
		{ "--help", CONFIG_HELP },
		{ "--version", CONFIG_VERSION },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct line line;

		line_parse(&line, cases[i].text);
		cr_assert_eq(line.result, 1);
		cr_assert_eq(line.mode, cases[i].mode);
		config_done(&line.config);
	}
}

Test(config, help_names_every_option_with_its_default)
{
	static const char *const wanted[] = {
		"--instance NAME",
		"(main)",
		"--socket PATH",
		"(/run/dsec.sock)",
		"--socket-mode",
		"(0600)",
		"--images DIR",
		"(/var/lib/dsec/images)",
		"--state DIR",
		"(/var/lib/dsec/state)",
		"--launcher PATH",
		"--shards N",
		"--launchers N",
		"--sandboxes-max N",
		"(8192)",
		"--execs-max",
		"--clients-max",
		"--requests-max",
		"--slot-uses-max",
		"--ttl TIME",
		"(86400s)",
		"--disk BYTES",
		"(1G)",
		"--inodes N",
		"--memory BYTES",
		"--pids N",
		"--ready-fd FD",
		"--lifeline",
		"--stop-timeout",
		"(30s)",
		"--no-pin",
		"--log-level",
		"(info)",
		"--network none|shared",
		"--shared-scope job|tenant|node",
		"(job)",
		"--check",
		"--json",
		"--help",
		"--version",
		"--creates-waiting-max",
	};
	char *text = NULL;
	size_t bytes = 0;
	FILE *to = open_memstream(&text, &bytes);
	struct line line;

	line_parse(&line, "");
	config_help(&line.config, to);
	fclose(to);
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
		cr_expect_not_null(strstr(text, wanted[i]), "%s", wanted[i]);
	free(text);
	config_done(&line.config);
}

Test(config, kernels_from_6_12_on_are_taken)
{
	static const char *const good[] = { "6.12.0", "6.12.117+deb13-amd64", "6.18.44", "7.0",
					    "10.1.2" };
	static const char *const old[] = { "6.11.99", "6.1.0-57-amd64", "5.15", "2.6.78", "6", "" };

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		cr_expect_eq(machine_kernel_check(good[i]), 0, "%s", good[i]);
	for (size_t i = 0; i < sizeof(old) / sizeof(old[0]); i++)
		cr_expect_eq(machine_kernel_check(old[i]), -ENOSYS, "%s", old[i]);
}

/* ---- machines ---- */

static const struct machine roomy = {
	.descriptors = 1 << 20,
	.pids = 4194304,
	.threads = 1 << 20,
	.user_namespaces = 1 << 20,
	.slot_namespaces = 1 << 20,
	.mount_namespaces = 1 << 20,
	.network_namespaces = 1 << 20,
	.memory_bytes = 64ull << 30,
};

static void two_shards(struct line *line, const char *text)
{
	line_parse(line, text);
	cr_assert_eq(line->result, 0);
	if (!config_is_given(&line->config, "shards"))
		line->config.shards = 2;
}

Test(config, roomy_machine_reduces_nothing)
{
	struct line line;
	struct config before;

	two_shards(&line, "");
	before = line.config;
	cr_assert_eq(config_fit(&line.config, &roomy), 0);
	cr_assert_eq(memcmp(&before, &line.config, sizeof(before)), 0);
	config_done(&line.config);
}

Test(config, as_many_creates_wait_as_a_shard_has_room_for_unless_given)
{
	struct line line;

	two_shards(&line, "--sandboxes-max 9001");
	cr_assert_eq(config_fit(&line.config, &roomy), 0);
	cr_assert_eq(line.config.creates_waiting_max, 4501);
	config_done(&line.config);
	two_shards(&line, "--sandboxes-max 9001 --creates-waiting-max 3");
	cr_assert_eq(config_fit(&line.config, &roomy), 0);
	cr_assert_eq(line.config.creates_waiting_max, 3);
	config_done(&line.config);
}

struct scarce {
	size_t offset;
	uint64_t value;
	char named[32];
};

ParameterizedTestParameters(config, scarce_machine_reduces_defaults_and_refuses_what_was_given)
{
	static struct scarce cases[] = {
		{ offsetof(struct machine, pids), 8192, "kernel.pid_max" },
		{ offsetof(struct machine, threads), 8192, "kernel.threads-max" },
		{ offsetof(struct machine, user_namespaces), 1000, "max_user_namespaces" },
		{ offsetof(struct machine, slot_namespaces), 1000, "pid,ipc,uts,cgroup" },
		{ offsetof(struct machine, mount_namespaces), 1000, "max_mnt_namespaces" },
		{ offsetof(struct machine, network_namespaces), 1000, "max_net_namespaces" },
		{ offsetof(struct machine, memory_bytes), 512 << 20, "available memory" },
	};

	return cr_make_param_array(struct scarce, cases, sizeof(cases) / sizeof(cases[0]));
}

ParameterizedTest(struct scarce *c, config,
		  scarce_machine_reduces_defaults_and_refuses_what_was_given,
		  .init = cr_redirect_stderr)
{
	struct machine machine = roomy;
	char message[MESSAGE_BYTES];
	struct line line;

	*(uint64_t *)((char *)&machine + c->offset) = c->value;
	two_shards(&line, "");
	cr_assert_eq(config_fit(&line.config, &machine), 0);
	cr_assert_lt(line.config.sandboxes_max, 8192);
	cr_assert_gt(line.config.sandboxes_max, 0);
	cr_assert_eq(config_fit(&line.config, &machine), 0, "what was reduced fits");
	config_done(&line.config);

	two_shards(&line, "--sandboxes-max 8192");
	cr_assert_eq(config_fit(&line.config, &machine), -ERANGE);
	cr_assert_eq(line.config.sandboxes_max, 8192);
	config_done(&line.config);

	told(message);
	cr_assert_not_null(strstr(message, "--sandboxes-max reduced from 8192 to "), "%s", message);
	cr_assert_not_null(strstr(message, "--sandboxes-max 8192 does not fit: "), "%s", message);
	cr_assert_not_null(strstr(message, c->named), "%s", message);
}

Test(config, memory_allows_200_KiB_a_sandbox_beside_64_MiB, .init = cr_redirect_stderr)
{
	struct machine machine = roomy;
	struct line line;

	machine.memory_bytes = (64 << 20) + 1000 * (200 << 10) + 1;
	two_shards(&line, "");
	cr_assert_eq(config_fit(&line.config, &machine), 0);
	cr_assert_eq(line.config.sandboxes_max, 1000);
	config_done(&line.config);
}

Test(config, machine_without_room_for_one_is_refused, .init = cr_redirect_stderr)
{
	struct machine machine = roomy;
	struct line line;

	machine.memory_bytes = 64 << 20;
	two_shards(&line, "");
	cr_assert_eq(config_fit(&line.config, &machine), -ERANGE);
	config_done(&line.config);
}

Test(config, few_descriptors_reduce_execs_then_clients_until_they_fit, .init = cr_redirect_stderr)
{
	struct machine machine = roomy;
	struct line line;

	for (uint64_t have = 260; have < 10000; have += 7) {
		two_shards(&line, "");
		machine.descriptors = have;
		cr_assert_eq(config_fit(&line.config, &machine), 0, "%lu", have);
		cr_assert_leq(config_descriptors(&line.config), have);
		cr_assert_gt(line.config.execs_max, 0);
		cr_assert_gt(line.config.clients_max, 0);
		if (line.config.clients_max < 256)
			cr_assert_eq(line.config.execs_max, 1, "execs give way first");
		config_done(&line.config);
	}
}

Test(config, given_execs_and_clients_that_need_more_descriptors_are_refused,
     .init = cr_redirect_stderr)
{
	struct machine machine = roomy;
	char message[MESSAGE_BYTES];
	struct line line;

	machine.descriptors = 4096;
	two_shards(&line, "--execs-max 2048");
	cr_assert_eq(config_fit(&line.config, &machine), -ERANGE);
	cr_assert_eq(line.config.execs_max, 2048);
	told(message);
	cr_assert_not_null(strstr(message, "RLIMIT_NOFILE is 4096"), "%s", message);
	config_done(&line.config);
}

Test(config, soft_limit_of_descriptors_is_raised_to_the_hard_one, .init = cr_redirect_stderr)
{
	struct line line;
	struct rlimit before, after;

	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	before.rlim_cur = 256;
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
	line_parse(&line, "");
	cr_assert_eq(config_check(&line.config), 0);
	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &after), 0);
	cr_assert_eq(after.rlim_cur, after.rlim_max);
	cr_assert_geq(after.rlim_max, before.rlim_max);
	cr_assert_leq(config_descriptors(&line.config), after.rlim_max);
	config_done(&line.config);
}

/* ---- tenants ---- */

Test(config, one_tenant_is_there_with_all_of_the_engine)
{
	struct line line;

	line_parse(&line, "");
	cr_assert_eq(line.config.tenant_count, 1);
	cr_assert_str_eq(line.config.tenants[0].name, "default");
	cr_assert_eq(tenant_limit(&line.config, 0, TENANT_SANDBOXES), line.config.sandboxes_max);
	cr_assert_eq(tenant_limit(&line.config, 0, TENANT_CREATES), 0);
	config_done(&line.config);
}

Test(config, a_tenant_is_what_its_keys_say)
{
	struct line line;
	const struct tenant_config *tenant = &line.config.tenants[1];

	line_parse(&line, "--tenant name=a-1,socket=/run/a.sock,mode=660,gateway,execs-max=7 "
			  "--tenant=name=b,uid=5,uid=6 --tenant name=default,gateway");
	cr_assert_eq(line.result, 0);
	cr_assert_eq(line.config.tenant_count, 3);
	cr_assert_str_eq(tenant->name, "a-1");
	cr_assert_str_eq(tenant->socket_path, "/run/a.sock");
	cr_assert_eq(tenant->socket_mode, 0660);
	cr_assert(tenant->is_gateway && line.config.tenants[0].is_gateway);
	cr_assert_not(line.config.tenants[2].is_gateway);
	cr_assert_eq(line.config.tenants[2].uid_count, 2);
	cr_assert_eq(line.config.tenants[2].uids[1], 6);
	config_done(&line.config);
}

/* Those that are given nothing have equal parts of what is left. */
Test(config, tenants_limits_are_given_or_parts_of_the_rest)
{
	struct line line;

	line_parse(&line, "--sandboxes-max 100 --tenant name=a,sandboxes-max=40 --tenant name=b");
	cr_assert_eq(line.result, 0);
	cr_assert_eq(tenant_limit(&line.config, 0, TENANT_SANDBOXES), 30);
	cr_assert_eq(tenant_limit(&line.config, 1, TENANT_SANDBOXES), 40);
	cr_assert_eq(tenant_limit(&line.config, 2, TENANT_SANDBOXES), 30);
	cr_assert_not(tenant_limits_exceed(&line.config, TENANT_SANDBOXES));
	config_done(&line.config);
	line_parse(&line, "--sandboxes-max 100 --tenant name=a,sandboxes-max=100 --tenant name=b");
	cr_assert_eq(tenant_limit(&line.config, 2, TENANT_SANDBOXES), 1);
	cr_assert(tenant_limits_exceed(&line.config, TENANT_SANDBOXES));
	config_done(&line.config);
}

ParameterizedTestParameters(config, refusal_names_the_key)
{
	static struct refused cases[] = {
		{ "--tenant socket=/a", "name: is missing" },
		{ "--tenant name=A", "name: 1 to 24" },
		{ "--tenant name=*", "name: 1 to 24" },
		{ "--tenant name=a,name=b", "name: comes twice" },
		{ "--tenant name=a,sock=/a", "sock: there is no" },
		{ "--tenant name=a,socket", "socket: wants a" },
		{ "--tenant name=a,socket=b", "socket: wants a path" },
		{ "--tenant name=a,mode=660", "mode: without" },
		{ "--tenant name=a,socket=/a,mode=8", "mode: '8'" },
		{ "--tenant name=a,gateway=1", "gateway: takes no" },
		{ "--tenant name=a,execs-max=0", "execs-max: '0'" },
		{ "--tenant name=a,uid=-1", "uid: '-1'" },
		{ "--tenant name=a,uid=1,token-file=/t", "uid: goes with" },
		{ "--tenant name=a --tenant name=a", "a: is named twice" },
		{ "--tenant name=default,socket=/a", "default: has the" },
		{ "--tenant name=a,socket=/run/dsec.sock", "is the engine's own" },
		{ "--tenant name=a,uid=1 --tenant name=b,uid=1", "uid 1: is another" },
	};

	return cr_make_param_array(struct refused, cases, sizeof(cases) / sizeof(cases[0]));
}

ParameterizedTest(struct refused *wrong, config, refusal_names_the_key, .init = cr_redirect_stderr)
{
	struct line line;
	char text[MESSAGE_BYTES];

	line_parse(&line, wrong->text);
	cr_assert_eq(line.result, -EINVAL, "%s", wrong->text);
	told(text);
	cr_assert_not_null(strstr(text, wrong->named), "%s: %s", wrong->text, text);
	config_done(&line.config);
}
