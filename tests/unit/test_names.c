/*
 * The pure parts of the resolver: messages of DNS, addresses that were learned and that no name may
 * have, odd names, and who is asked.
 */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bpf/policy.h"
#include "engine/config_dns.h"
#include "engine/names/dns.h"
#include "engine/names/learned.h"
#include "engine/names/odd.h"
#include "engine/names/sieve.h"

/* ---- messages ---- */

struct message {
	uint8_t bytes[1024];
	size_t count;
};

static void put(struct message *m, const void *bytes, size_t count)
{
	cr_assert_leq(m->count + count, sizeof m->bytes);
	memcpy(m->bytes + m->count, bytes, count);
	m->count += count;
}

static void put_number(struct message *m, uint64_t value, unsigned width)
{
	for (unsigned i = width; i > 0; i--)
		put(m, &(uint8_t){ i > 8 ? 0 : (uint8_t)(value >> 8 * (i - 1)) }, 1);
}

static void put_name(struct message *m, const char *name)
{
	while (*name) {
		const size_t bytes = strcspn(name, ".");

		put_number(m, (uint32_t)bytes, 1);
		put(m, name, bytes);
		name += bytes + (name[bytes] == '.');
	}
	put_number(m, 0, 1);
}

static void put_question(struct message *m, uint16_t flags, const char *name, uint16_t type)
{
	put_number(m, 0x1234, 2);
	put_number(m, flags, 2);
	put_number(m, 1, 2);
	put_number(m, 0, 6);
	put_name(m, name);
	put_number(m, type, 2);
	put_number(m, 1, 2);
}

/* Its data follows. */
static void put_record(struct message *m, const char *owner, uint16_t type, uint32_t ttl_s,
		       size_t bytes)
{
	put_name(m, owner);
	put_number(m, type, 2);
	put_number(m, 1, 2);
	put_number(m, ttl_s, 4);
	put_number(m, (uint32_t)bytes, 2);
	m->bytes[7]++;
}

static void put_address(struct message *m, const char *owner, uint32_t ttl_s, const char *text)
{
	const bool is_v6 = strchr(text, ':');
	uint8_t address[16];

	cr_assert_eq(inet_pton(is_v6 ? AF_INET6 : AF_INET, text, address), 1);
	put_record(m, owner, is_v6 ? DNS_AAAA : DNS_A, ttl_s, is_v6 ? 16 : 4);
	put(m, address, is_v6 ? 16 : 4);
}

static void put_alias(struct message *m, const char *owner, uint32_t ttl_s, const char *target)
{
	struct message name = { .count = 0 };

	put_name(&name, target);
	put_record(m, owner, DNS_CNAME, ttl_s, name.count);
	put(m, name.bytes, name.count);
}

static struct dns_question question_of(const char *name, uint16_t type)
{
	struct message m = { .count = 0 };
	struct dns_question question;

	put_question(&m, 0x0100, name, type);
	cr_assert_eq(dns_question_read(m.bytes, m.count, &question), 0);
	return question;
}

Test(names, a_question_is_read_in_lower_case_and_what_is_none_is_not_answered)
{
	struct message m = { .count = 0 };
	struct dns_question q;

	put_question(&m, 0x0100, "Api.EXAMPLE", DNS_A);
	cr_assert_eq(dns_question_read(m.bytes, m.count, &q), 0);
	cr_expect_str_eq(q.name, "api.example");
	cr_expect(q.id == 0x1234 && q.type == DNS_A && q.is_recursive);
	cr_expect_eq(q.room, 512);
	for (size_t cut = 0; cut < m.count; cut++)
		cr_expect_neq(dns_question_read(m.bytes, cut, &q), 0, "cut at %zu", cut);
	put_number(&m, 0, 1);
	cr_expect_eq(dns_question_read(m.bytes, m.count, &q), DNS_FORMERR, "something behind it");
	m.bytes[11] = 1;
	put_number(&m, DNS_OPT, 2);
	put_number(&m, 4096, 2);
	put_number(&m, 0, 6);
	cr_assert_eq(dns_question_read(m.bytes, m.count, &q), 0);
	cr_expect_eq(q.room, DNS_UDP_BYTES, "no more than fits everywhere");
	m.bytes[2] |= 0x80;
	cr_expect_eq(dns_question_read(m.bytes, m.count, &q), -EBADMSG, "an answer");
	m.bytes[2] = 0x28;
	cr_expect_eq(dns_question_read(m.bytes, m.count, &q), DNS_NOTIMP, "an update");
	q = question_of("a b.example", DNS_A);
	cr_expect_str_eq(q.name, "a?b.example", "no host has such a name");
}

Test(names, a_question_cannot_point_anywhere_and_a_name_has_an_end)
{
	static const uint8_t pointer[] = { 0x12, 0x34, 1, 0,   0,    1,	 0, 0, 0, 0,
					   0,	 0,    1, 'a', 0xc0, 12, 0, 1, 0, 1 };
	struct message m = { .count = 0 };
	struct dns_question q;
	struct dns_answer answer;
	char name[300];

	cr_expect_eq(dns_question_read(pointer, sizeof pointer, &q), DNS_FORMERR);
	memset(name, 'a', sizeof name);
	for (int i = 50; i < 299; i += 50)
		name[i] = '.';
	name[299] = 0;
	put_question(&m, 0, name, DNS_A);
	cr_expect_eq(dns_question_read(m.bytes, m.count, &q), DNS_FORMERR, "a name of 299 bytes");
	/* An owner that points to itself, and one that points ahead. */
	for (unsigned to = 0; to < 2; to++) {
		m = (struct message){ .count = 0 };
		q = question_of("api.example", DNS_A);
		put_question(&m, 0x8180, "api.example", DNS_A);
		put_number(&m, (uint32_t)(0xc000 | (m.count + to * 4)), 2);
		put_number(&m, 0, 14);
		m.bytes[7] = 1;
		cr_expect_eq(dns_answer_read(m.bytes, m.count, 0x1234, &q, &answer), -EBADMSG);
	}
}

Test(names, of_an_answer_only_what_the_name_leads_to_counts)
{
	struct dns_question q = question_of("www.api.example", DNS_A);
	struct message m = { .count = 0 };
	struct dns_answer answer;

	put_question(&m, 0x8180, "WWW.api.example", DNS_A);
	put_address(&m, "edge.cdn.example", 500, "192.0.2.7"); /* before its alias */
	put_address(&m, "bank.example", 500, "192.0.2.66");
	put_address(&m, "www.api.example", 500, "2001:db8::1"); /* was not asked for */
	put_alias(&m, "www.api.example", 90, "edge.cdn.example");
	put_address(&m, "edge.cdn.example", 40, "192.0.2.8");
	cr_assert_eq(dns_answer_read(m.bytes, m.count, 0x1234, &q, &answer), 0);
	cr_assert_eq(answer.count, 2);
	cr_expect_eq(answer.addresses[0].address[15], 7);
	cr_expect_eq(answer.addresses[0].ttl_s, 90, "no longer than its alias");
	cr_expect_eq(answer.addresses[1].ttl_s, 40);
	cr_expect_eq(answer.addresses[1].address[11], 0xff);
	cr_expect_eq(dns_answer_read(m.bytes, m.count, 0x1235, &q, &answer), -EBADMSG,
		     "another id");
	for (size_t cut = 0; cut < m.count; cut++)
		cr_expect_eq(dns_answer_read(m.bytes, cut, 0x1234, &q, &answer), -EBADMSG);
	q = question_of("api.example", DNS_A);
	cr_expect_eq(dns_answer_read(m.bytes, m.count, 0x1234, &q, &answer), -EBADMSG,
		     "of another name");
	m.bytes[2] |= 2;
	q = question_of("www.api.example", DNS_A);
	cr_assert_eq(dns_answer_read(m.bytes, m.count, 0x1234, &q, &answer), 0);
	cr_expect(answer.is_cut && !answer.count);
	m = (struct message){ .count = 0 };
	put_question(&m, 0x8180, "www.api.example", DNS_A);
	put_alias(&m, "www.api.example", 9, "a.example");
	put_alias(&m, "a.example", 9, "www.api.example");
	cr_expect_eq(dns_answer_read(m.bytes, m.count, 0x1234, &q, &answer), -EBADMSG, "a circle");
	m = (struct message){ .count = 0 };
	q = question_of("six.example", DNS_AAAA);
	put_question(&m, 0x8180, "six.example", DNS_AAAA);
	put_address(&m, "six.example", 9, "::ffff:192.0.2.1");
	put_address(&m, "six.example", 9, "2001:db8::7");
	cr_assert_eq(dns_answer_read(m.bytes, m.count, 0x1234, &q, &answer), 0);
	cr_assert_eq(answer.count, 1, "what is IPv4 is not IPv6");
	cr_expect_eq(answer.addresses[0].address[15], 7);
}

Test(names, a_reply_has_the_addresses_as_the_names_own_or_says_that_it_is_cut)
{
	struct dns_question q = question_of("api.example", DNS_A);
	struct dns_answer answer = { .count = DNS_ADDRESSES_MAX }, read;
	uint8_t bytes[DNS_MESSAGE_BYTES_MAX];
	size_t count;

	for (uint32_t i = 0; i < answer.count; i++)
		answer.addresses[i] = (struct dns_address){
			.address = { [10] = 0xff, [11] = 0xff, [12] = 192, [15] = (uint8_t)i },
			.ttl_s = 60
		};
	count = dns_reply_write(bytes, 512, &q, &answer);
	cr_assert_eq(dns_answer_read(bytes, count, q.id, &q, &read), 0);
	cr_expect(read.is_cut);
	count = dns_reply_write(bytes, sizeof bytes, &q, &answer);
	cr_assert_eq(dns_answer_read(bytes, count, q.id, &q, &read), 0);
	cr_expect(!read.is_cut && read.count == answer.count);
	cr_expect_eq(memcmp(read.addresses, answer.addresses, sizeof read.addresses), 0);
	answer = (struct dns_answer){ .rcode = DNS_NXDOMAIN };
	count = dns_reply_write(bytes, 512, &q, &answer);
	cr_assert_eq(dns_answer_read(bytes, count, q.id, &q, &read), 0);
	cr_expect(read.rcode == DNS_NXDOMAIN && !read.count);
	count = dns_query_write(bytes, 77, &q);
	cr_assert_eq(dns_question_read(bytes, count, &q), 0);
	cr_expect(q.id == 77 && !strcmp(q.name, "api.example"));
}

/* ---- what is learned ---- */

static struct guard_destination destination(uint8_t last, uint16_t port)
{
	return (struct guard_destination){
		.address = { [10] = 0xff, [11] = 0xff, [15] = last },
		.port_count = 1,
		.ports = { { .first = port, .last = port, .protocol = IPPROTO_TCP, .rule = 1 } }
	};
}

Test(names, an_address_has_what_all_its_names_have_and_the_one_that_ends_first_makes_room)
{
	struct learned_list list = { 0 };
	struct learned *learned, gone;
	struct guard_destination to = destination(1, 443);

	cr_assert_eq(learned_add(&list, &to, 1000, &learned, &gone), 0);
	cr_assert_eq(learned_add(&list, &to, 900, &learned, &gone), 0);
	cr_expect(learned->range_count == 1 && learned->until_ns[0] == 1000, "the later end");
	for (uint16_t port = 1; port <= GUARD_PORT_RANGES_MAX; port++) {
		to = destination(1, port);
		cr_assert_eq(learned_add(&list, &to, 2000 + port, &learned, &gone), 0);
	}
	cr_expect_eq(list.count, 1);
	cr_expect_eq(learned->range_count, GUARD_PORT_RANGES_MAX);
	for (uint32_t i = 0; i < learned->range_count; i++)
		cr_expect_neq(learned->ranges[i].first, 443, "it ended first");
	for (unsigned i = 2; i <= LEARNED_MAX; i++) {
		to = destination((uint8_t)i, 80);
		cr_assert_eq(learned_add(&list, &to, i == 9 ? 5 : 5000 + i, &learned, &gone), 0);
		cr_expect_eq(gone.range_count, 0);
	}
	to = destination(200, 80);
	cr_assert_eq(learned_add(&list, &to, 9000, &learned, &gone), 0);
	cr_expect_eq(list.count, LEARNED_MAX);
	cr_expect(gone.range_count == 1 && gone.address[15] == 9);
	learned_done(&list);
}

Test(names, an_address_is_of_the_names_it_was_told_for_and_of_the_latest_ones_alone)
{
	struct learned_list list = { 0 };
	struct learned *learned, gone;
	struct guard_destination to = destination(1, 443), other = destination(2, 443);
	char name[32];

	cr_expect_not(learned_is_of(&list, to.address, "api.example"), "nothing was learned");
	cr_assert_eq(learned_add(&list, &to, 1000, &learned, &gone), 0);
	cr_expect_not(learned_is_of(&list, to.address, ""));
	learned_name(learned, "api.example");
	cr_expect(learned_is_of(&list, to.address, "api.example"));
	cr_expect_not(learned_is_of(&list, to.address, "a.example"));
	cr_expect_not(learned_is_of(&list, other.address, "api.example"));
	for (int i = 0; i < LEARNED_NAMES_MAX; i++) {
		learned_name(learned, "other.example"); /* it takes one place, however often */
		cr_expect(learned_is_of(&list, to.address, "api.example"));
	}
	for (int i = 0; i < LEARNED_NAMES_MAX; i++) {
		(void)snprintf(name, sizeof name, "n%d.example", i);
		learned_name(learned, name);
	}
	cr_expect_not(learned_is_of(&list, to.address, "api.example"), "the oldest is forgotten");
	cr_expect(learned_is_of(&list, to.address, "n0.example"));
	/* What is allowed by TLS alone is another thing than what is allowed. */
	to.ports[0].is_tls = true;
	cr_assert_eq(learned_add(&list, &to, 1000, &learned, &gone), 0);
	cr_expect_eq(learned->range_count, 2);
	learned_done(&list);
}

Test(names, no_name_may_have_an_address_of_this_machine_its_neighbours_or_a_cloud)
{
	static const struct {
		const char *address;
		uint32_t rule;
	} cases[] = {
		{ "192.0.2.1", 0 },
		{ "10.199.255.255", 0 },
		{ "10.200.0.0", POLICY_RULE_NEIGHBOUR },
		{ "10.200.255.255", POLICY_RULE_NEIGHBOUR },
		{ "10.201.0.0", 0 },
		{ "127.0.0.1", POLICY_RULE_NEIGHBOUR },
		{ "0.0.0.0", POLICY_RULE_NEIGHBOUR },
		{ "224.0.0.1", POLICY_RULE_NEIGHBOUR },
		{ "255.255.255.255", POLICY_RULE_NEIGHBOUR },
		{ "169.254.169.254", POLICY_RULE_METADATA_ADDRESS },
		{ "100.100.100.200", POLICY_RULE_METADATA_ADDRESS },
		{ "168.63.129.16", POLICY_RULE_METADATA_ADDRESS },
		{ "192.0.0.192", POLICY_RULE_METADATA_ADDRESS },
		{ "2001:db8::1", 0 },
		{ "::", POLICY_RULE_NEIGHBOUR },
		{ "::1", POLICY_RULE_NEIGHBOUR },
		{ "fe80::1", POLICY_RULE_NEIGHBOUR },
		{ "ff02::1", POLICY_RULE_NEIGHBOUR },
		{ "fd00:ec2::254", POLICY_RULE_METADATA_ADDRESS },
		{ "fd20:ce::254", POLICY_RULE_METADATA_ADDRESS },
		{ "64:ff9b::169.254.169.254", POLICY_RULE_METADATA_ADDRESS },
		{ "2002:a9fe:a9fe::1", POLICY_RULE_METADATA_ADDRESS },
		{ "::127.0.0.1", POLICY_RULE_NEIGHBOUR },
		{ "64:ff9b::192.0.2.1", 0 },
		{ "64:ff9b:1::169.254.169.254", POLICY_RULE_METADATA_ADDRESS },
		{ "10.64.0.1", POLICY_RULE_NEIGHBOUR },
		{ "10.128.0.1", 0 },
		{ "fd5e:ec::1", POLICY_RULE_NEIGHBOUR },
		{ "fd5e:ec:0:1::1", 0 },
		{ "fd00:d5ec:0:8::1", POLICY_RULE_NEIGHBOUR },
		{ "fd00:d5ec:0:f::1", POLICY_RULE_NEIGHBOUR },
		{ "fd00:d5ec:0:10::1", 0 },
	};
	const struct sieve_own own = {
		.prefixes = {
			{ { [10] = 0xff, 0xff, 10, 200 }, 112 },
			{ { [10] = 0xff, 0xff, 10, 64 }, 106 },
			{ { 0xfd, 0x5e, 0x00, 0xec }, 64 },
			{ { 0xfd, 0x00, 0xd5, 0xec, 0, 0, 0, 0x08 }, 61 },
		},
		.count = 4,
	};

	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		uint8_t address[16] = { [10] = 0xff, [11] = 0xff };

		if (strchr(cases[i].address, ':'))
			(void)inet_pton(AF_INET6, cases[i].address, address);
		else
			(void)inet_pton(AF_INET, cases[i].address, address + 12);
		cr_expect_eq(sieve_rule(address, &own), cases[i].rule, "%s", cases[i].address);
	}
}

Test(names, a_name_is_odd_that_carries_data_and_one_that_people_made_is_not)
{
	static const char *const odd[] = {
		"4d5a9003b8f1c7e2d84f60a19e37bc52.t.example",
		"mzxw6ytboi4dcmjqgi2tknzzhe3dgnbv.a.example",
		"x.0f3a9c71be52d8846e1b7.example",
	};
	static const char *const plain[] = {
		"registry.example",
		"production-mirror-registry.europe-west4.example",
		"index.debian-security-12.mirror.example",
		"d1a2b3c4e5f6.cdn.example",
		"11111111111111111111.example",
		"",
	};
	struct names_lately lately = { 0 };
	char name[128];

	for (unsigned i = 0; i < sizeof odd / sizeof *odd; i++)
		cr_expect(name_is_odd(odd[i]), "%s", odd[i]);
	for (unsigned i = 0; i < sizeof plain / sizeof *plain; i++)
		cr_expect_not(name_is_odd(plain[i]), "%s", plain[i]);
	memset(name, 'a', sizeof name);
	name[60] = '.';
	name[NAME_ODD_BYTES] = 0;
	cr_expect_not(name_is_odd(name));
	name[NAME_ODD_BYTES] = 'a';
	name[NAME_ODD_BYTES + 1] = 0;
	cr_expect(name_is_odd(name), "as long as no host's");
	cr_expect(name_is_new(&lately, odd[0]));
	cr_expect_not(name_is_new(&lately, odd[0]), "once");
	cr_expect(name_is_new(&lately, odd[1]));
}

Test(names, who_is_asked_is_read_whole_or_refused)
{
	static const struct {
		const char *option;
		int family, port;
	} cases[] = {
		{ "192.0.2.1", AF_INET, 53 },
		{ "192.0.2.1:5353", AF_INET, 5353 },
		{ "2001:db8::1", AF_INET6, 53 },
		{ "[2001:db8::1]", AF_INET6, 53 },
		{ "[2001:db8::1]:5353", AF_INET6, 5353 },
		{ "192.0.2.1:", 0, 0 },
		{ "192.0.2.1:0", 0, 0 },
		{ "192.0.2.1:65536", 0, 0 },
		{ "192.0.2.1:5x", 0, 0 },
		{ "[2001:db8::1]x", 0, 0 },
		{ "resolver.example", 0, 0 },
		{ "", 0, 0 },
		{ ":53", 0, 0 },
	};

	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct upstreams upstreams;
		const struct sockaddr_in *v4 =
			(const struct sockaddr_in *)&upstreams.all[0].address;
		int r = upstreams_read(cases[i].option, &upstreams);

		if (!cases[i].family) {
			cr_expect_eq(r, -EINVAL, "%s", cases[i].option);
			continue;
		}
		cr_assert_eq(r, 0, "%s", cases[i].option);
		cr_expect_eq(upstreams.count, 1);
		cr_expect_eq(v4->sin_family, cases[i].family, "%s", cases[i].option);
		cr_expect_eq(ntohs(v4->sin_port), cases[i].port, "the same place in both families");
		cr_expect_str_eq(upstreams.all[0].text, cases[i].option);
	}
}
