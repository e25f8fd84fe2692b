/*
 * Named services: every mistake with its file, its place and its words, what a folder comes to, and
 * what policies make of them.
 */
#include "engine/policy/services.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/policy/yaml.h"
#include "tests/unit/policy_table.h"

static const struct bad {
	const char *document, *mistake;
} bads[] = {
	{ "name: x\n", "1:1 protocol: expected, the service has none" },
	{ "protocol: https\n", "1:1 name: expected, the service has none" },
	{ "name: X\nprotocol: https\nhosts: [a.example]\n",
	  "1:7 name: expected 1 to 63 of a-z 0-9 and - inside" },
	{ "name: x\nprotocol: gopher\nhosts: [a.example]\n",
	  "2:11 protocol: unknown; one of https, tls, http, ssh, git, svn, quic, tcp, udp" },
	{ "name: x\nprotocol: tcp\nhosts: [a.example]\n",
	  "2:11 ports: expected, tcp alone has none" },
	{ "name: x\nprotocol: https\nhost: [a.example]\n",
	  "3:1 host: unknown field; did you mean hosts?" },
	{ "name: x\nprotocol: https\nhosts: a.example\n", "3:8 hosts: expected a list" },
	{ "name: x\nprotocol: https\nhosts: [192.0.2.1]\n",
	  "3:9 hosts: expected a name, as mirror.example" },
	{ "name: x\nprotocol: https\naddresses: [a.example]\n",
	  "3:13 addresses: expected an address, as 192.0.2.0/24" },
	{ "name: x\nprotocol: https\naddresses: [192.0.2.1/24]\n",
	  "3:13 addresses: bits beyond the prefix: write its first address" },
	{ "name: x\nprotocol: https\naddresses: [192.0.2.1]\nports: [53]\n",
	  "3:13 addresses: port 53 is the resolver's alone: names cannot be asked elsewhere" },
	{ "name: x\nprotocol: https\naddresses: [192.0.2.1 udp]\n",
	  "3:13 addresses: expected one without ports" },
	{ "name: x\nprotocol: https\nports: [https]\nhosts: [a.example]\n",
	  "3:9 ports: expected a port, or two as 8000-8080" },
	{ "name: x\nprotocol: https\n", "1:1 hosts: expected, or addresses: it has neither" },
	{ "- {name: x, protocol: http, hosts: [a.example]}\n"
	  "- {name: x, protocol: http, hosts: [b.example]}\n",
	  "2:3 name: there is a service x already" },
	{ "[[]]\n", "1:2 expected a service: name, protocol, hosts, addresses, ports" },
};

Test(services, a_mistake_is_told_with_its_place_its_field_and_what_was_expected)
{
	for (size_t i = 0; i < sizeof bads / sizeof bads[0]; i++) {
		struct services *services = calloc(1, sizeof *services);
		struct policy_mistake mistake = { 0 };
		char told[256];
		int r = services_add(services, bads[i].document, strlen(bads[i].document),
				     &mistake);

		(void)snprintf(told, sizeof told, "%u:%u %s", mistake.line, mistake.column,
			       mistake.text);
		cr_expect_eq(r, -EBADMSG, "%s", bads[i].document);
		cr_expect_str_eq(told, bads[i].mistake);
		services_free(services);
	}
}

static void put(const char *folder, const char *name, const char *text)
{
	char path[128];
	int fd;

	(void)snprintf(path, sizeof path, "%s/%s", folder, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	cr_assert(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	(void)close(fd);
}

static void removed(const char *folder)
{
	char command[128];

	(void)snprintf(command, sizeof command, "rm -r '%s'", folder);
	cr_assert_eq(system(command), 0);
}

Test(services, a_folder_is_read_whole_or_refused_with_the_file)
{
	char folder[] = "/tmp/dsec-services-XXXXXX", why[SERVICES_WHY_BYTES], known[64];
	struct services *services = NULL;
	const struct service *found;

	cr_assert(mkdtemp(folder));
	put(folder, "z.yaml", "{name: go, protocol: https, hosts: [.go.example]}\n");
	put(folder, "a.yaml",
	    "- name: packages\n  protocol: https\n  hosts: [p.example]\n"
	    "  addresses: [192.0.2.0/24]\n  ports: [443, 8000-8080]\n");
	put(folder, "notes.txt", "no document");
	put(folder, ".hidden.yaml", "no document");
	cr_assert_eq(services_read(folder, &services, why), 0, "%s", why);
	cr_expect_eq(services->count, 2);
	services_names(services, known, sizeof known);
	cr_expect_str_eq(known, "go, packages");
	cr_assert(found = services_find(services, "packages"));
	cr_expect_eq(found->place_count, 2);
	cr_expect_str_eq(found->places[1], "192.0.2.0/24 tcp/443,8000-8080");
	cr_expect_null(services_find(services, "nosuch"));
	services_free(services);
	put(folder, "m.yaml", "name: m\nprotocol: https\nhosts: [a b]\n");
	cr_expect_eq(services_read(folder, &services, why), -EBADMSG);
	cr_expect_str_eq(why, "m.yaml:3:9 hosts: expected one without ports");
	put(folder, "m.yaml", "");
	cr_expect_eq(services_read(folder, &services, why), -EBADMSG);
	removed(folder);
	cr_expect_eq(services_read(folder, &services, why), -ENOENT);
}

Test(services, a_policy_has_the_places_of_what_it_names_and_unknown_ones_are_refused)
{
	struct services *services = calloc(1, sizeof *services);
	struct policy_table *table = table_open();
	struct policy_mistake mistake = { 0 };
	struct policy *policy = NULL;
	static const char text[] = "- {name: go, protocol: https, hosts: [go.example], "
				   "addresses: [192.0.2.0/24, 198.51.100.7]}\n"
				   "- {name: deb, protocol: http, addresses: [192.0.2.0/24]}\n";

	cr_expect_eq(load(table, 0, "name: x\nnetwork: {egress: {allow: [service: go]}}\n", &policy,
			  &mistake),
		     -EBADMSG);
	cr_expect_str_eq(mistake.text, "network.egress.allow: there is no service go; there is "
				       "none: see dsecd --services");
	cr_assert_eq(services_add(services, text, strlen(text), &mistake), 0);
	table->services = services;
	policy = loaded(table, "name: x\nnetwork: {egress: {allow: [service: go, "
			       "10.0.0.0/8 tcp/1, service: deb, service: go]}}\n");
	cr_expect_eq(policy->guard.rule_count, 4, "go has one for names, one for addresses");
	cr_expect_str_eq(policy->rules[1].label, "network.egress.allow service: go");
	cr_expect_str_eq(policy->rules[3].label, "network.egress.allow service: deb");
	cr_expect_eq(policy->guard.destination_count, 3, "both have 192.0.2.0/24");
	cr_expect_eq(policy->guard.name_count, 1);
	cr_expect_str_eq(policy->guard.names[0].text, "go.example");
	cr_expect_eq(policy->anomalies.services[0], 1 | 2 | 8);
	cr_expect_eq(load(table, 0, "name: y\nnetwork: {egress: {allow: [service: god]}}\n",
			  &policy, &mistake),
		     -EBADMSG);
	cr_expect_str_eq(mistake.text,
			 "network.egress.allow: there is no service god; there is deb, go");
	cr_expect_eq(load(table, 0, "name: y\nnetwork: {egress: {allow: [srvice: go]}}\n", &policy,
			  &mistake),
		     -EBADMSG);
	cr_expect_str_eq(mistake.text, "network.egress.allow: expected service: NAME");
	cr_expect_eq(load(table, 0, "name: y\nnetwork: {egress: {deny: [service: go]}}\n", &policy,
			  &mistake),
		     -EBADMSG);
	table_close(table);
	services_free(services);
}

Test(services, what_is_read_again_holds_for_what_is_loaded_again)
{
	static const char document[] = "name: x\nnetwork: {egress: {allow: [service: a]}}\n";
	static const char plain[] = "name: y\n", child[] = "name: z\nextends: x\n";
	char folder[] = "/tmp/dsec-services-XXXXXX", why[SERVICES_WHY_BYTES];
	struct policy_table *table = table_open();
	struct policy *x, *y, *again;
	struct services *first;

	cr_assert(mkdtemp(folder));
	put(folder, "a.yaml", "name: a\nprotocol: https\nhosts: [one.example]\n");
	cr_assert_eq(policies_read_services(table, folder, why), 1);
	first = table->services;
	x = loaded(table, document);
	y = loaded(table, plain);
	(void)loaded(table, child);
	cr_expect_eq(policies_read_services(table, folder, why), 0, "they are the same");
	services_use(first);
	put(folder, "a.yaml", "name: a\nprotocol: https\nhosts: [two.example, three.example]\n");
	cr_assert_eq(policies_read_services(table, folder, why), 1);
	cr_expect(policy_is_dated(x, table->services->number));
	cr_expect_not(policy_is_dated(y, table->services->number));
	cr_expect_str_eq(x->guard.names[0].text, "one.example");
	/* Wrong: nothing of it. */
	put(folder, "b.yaml", "name: b\nprotocl: https\n");
	cr_expect_eq(policies_read_services(table, folder, why), -EBADMSG);
	cr_expect(strstr(why, "b.yaml:2:1 protocl"), "%s", why);
	cr_expect_not_null(services_find(table->services, "a"));
	/* The same document is another version now, and only where it names services. */
	again = loaded(table, document);
	cr_expect_neq(again, x);
	cr_expect_not(policy_is_dated(again, table->services->number));
	cr_expect_eq(again->guard.name_count, 2);
	cr_expect_eq(loaded(table, plain), y);
	cr_expect_eq(loaded(table, child)->guard.name_count, 2);
	/* Who tells of the first still may. */
	policies_sweep(table);
	cr_expect_eq(table->services->older, first);
	cr_expect_str_eq(first->list[0].places[0], "one.example tcp/443");
	services_put(first);
	policies_sweep(table);
	cr_expect_null(table->services->older);
	removed(folder);
	first = table->services;
	table_close(table);
	services_free(first);
}
