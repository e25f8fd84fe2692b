/*
 * Claims about what comes out of a virtual machine's tap: frames are written into a tap, and into
 * the far end of a veth pair, as a guest would, in a network namespace of the test's own.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/icmp6.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/ip_icmp.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <sched.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "bpf/guard_policy.h"
#include "bpf/guard_tap.h"
#include "engine/base/cleanup.h"

extern char **environ;

enum { FRAME_BYTES_MAX = 256, POLICY = 7, CGROUP = 4711, DEVICES = 2 };
enum { FRAGMENT_AT = ETH_HLEN + 6 }; /* of the two bytes in an IPv4 header */

static const uint8_t own_mac[6] = { 0x02, 0xd5, 0xec, 0, 0, 1 };
static const char *const own4 = "10.80.0.2";
static const char *const own6 = "fd5e:ec::2";
/* What own_mac makes of itself. */
static const char *const own_link_local = "fe80::d5:ecff:fe00:1";

/* A device, and how a machine behind it sends. */
struct device {
	const char *kind;
	char name[IFNAMSIZ];
	uint32_t index;
	int fd; /* the tap's, or a packet socket on the far end */
};

struct fixture {
	struct guard_taps *taps;
	struct device devices[DEVICES];
};

static void run(const char *const argv[])
{
	pid_t pid;
	int status;

	cr_assert_eq(posix_spawnp(&pid, argv[0], NULL, NULL, (char **)argv, environ), 0);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert_eq(status, 0, "%s %s %s", argv[0], argv[1], argv[2]);
}

static void device_up(const char *name)
{
	run((const char *const[]){ "ip", "link", "set", name, "up", NULL });
}

static void tap_make(struct device *device)
{
	struct ifreq request = { .ifr_flags = IFF_TAP | IFF_NO_PI };

	*device = (struct device){ .kind = "tap", .name = "tap0" };
	device->fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
	cr_assert_geq(device->fd, 0, "/dev/net/tun: %s", strerror(errno));
	(void)snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", device->name);
	cr_assert_eq(ioctl(device->fd, TUNSETIFF, &request), 0, "%s", strerror(errno));
	device_up(device->name);
	device->index = if_nametoindex(device->name);
}

static void veth_make(struct device *device)
{
	struct sockaddr_ll far = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL) };

	*device = (struct device){ .kind = "veth", .name = "near" };
	run((const char *const[]){ "ip", "link", "add", "near", "type", "veth", "peer", "name",
				   "far", NULL });
	device_up("near");
	device_up("far");
	device->index = if_nametoindex("near");
	far.sll_ifindex = (int)if_nametoindex("far");
	device->fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	cr_assert_eq(bind(device->fd, (const struct sockaddr *)&far, sizeof(far)), 0);
}

static struct fixture fixture;

static struct guard_tap own_tap(void)
{
	struct guard_tap tap = {
		.cgroup_id = CGROUP, .policy = POLICY, .has_address4 = true, .has_address6 = true
	};

	memcpy(tap.mac, own_mac, sizeof(tap.mac));
	cr_assert_eq(inet_pton(AF_INET, own4, tap.address4), 1);
	cr_assert_eq(inet_pton(AF_INET6, own6, tap.address6), 1);
	return tap;
}

static void setup(void)
{
	const struct guard_tap tap = own_tap();

	/* libxdp mounts a bpffs where there is none: nobody else's business. */
	cr_assert_eq(unshare(CLONE_NEWNET | CLONE_NEWNS), 0);
	cr_assert_eq(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	tap_make(&fixture.devices[0]);
	veth_make(&fixture.devices[1]);
	cr_assert_eq(guard_taps_open(&fixture.taps), 0);
	for (int i = 0; i < DEVICES; i++)
		cr_assert_eq(guard_tap_set(fixture.taps, fixture.devices[i].index, &tap), 0);
}

static void teardown(void)
{
	for (int i = 0; i < DEVICES; i++) {
		cr_expect_eq(guard_tap_clear(fixture.taps, fixture.devices[i].index), 0);
		close(fixture.devices[i].fd);
	}
	guard_taps_close(fixture.taps);
}

TestSuite(tap, .init = setup, .fini = teardown, .timeout = 240);

/* ---- frames ---- */

struct frame {
	uint8_t bytes[FRAME_BYTES_MAX];
	size_t used;
};

static void frame_put(struct frame *frame, const void *header, size_t bytes)
{
	cr_assert_leq(frame->used + bytes, sizeof(frame->bytes));
	memcpy(frame->bytes + frame->used, header, bytes);
	frame->used += bytes;
}

static struct frame frame_from(const uint8_t mac[6], uint16_t type)
{
	struct ether_header ethernet = { .ether_type = htons(type) };
	struct frame frame = { .used = 0 };

	memset(ethernet.ether_dhost, 0xff, sizeof(ethernet.ether_dhost));
	memcpy(ethernet.ether_shost, mac, sizeof(ethernet.ether_shost));
	frame_put(&frame, &ethernet, sizeof(ethernet));
	return frame;
}

static void transport_put(struct frame *frame, uint8_t protocol, uint16_t port)
{
	const struct tcphdr tcp = { .dest = htons(port), .doff = 5, .syn = 1 };
	const struct udphdr udp = { .dest = htons(port), .len = htons(sizeof(udp)) };
	const struct icmphdr icmp = { .type = (uint8_t)port };

	if (protocol == IPPROTO_TCP)
		frame_put(frame, &tcp, sizeof(tcp));
	else if (protocol == IPPROTO_UDP)
		frame_put(frame, &udp, sizeof(udp));
	else
		frame_put(frame, &icmp, sizeof(icmp));
}

static struct frame ipv4(const char *from, const char *to, uint8_t protocol, uint16_t port)
{
	struct iphdr ip = { .version = 4, .ihl = 5, .ttl = 64, .protocol = protocol };
	struct frame frame = frame_from(own_mac, ETHERTYPE_IP);

	cr_assert_eq(inet_pton(AF_INET, from, &ip.saddr), 1);
	cr_assert_eq(inet_pton(AF_INET, to, &ip.daddr), 1);
	frame_put(&frame, &ip, sizeof(ip));
	transport_put(&frame, protocol, port);
	return frame;
}

static struct frame ipv6(const char *from, const char *to, uint8_t protocol, uint16_t port)
{
	struct frame frame = frame_from(own_mac, ETHERTYPE_IPV6);
	struct ip6_hdr ip = { 0 };

	ip.ip6_vfc = 6 << 4;
	ip.ip6_nxt = protocol;
	ip.ip6_hlim = 255;
	cr_assert_eq(inet_pton(AF_INET6, from, &ip.ip6_src), 1);
	cr_assert_eq(inet_pton(AF_INET6, to, &ip.ip6_dst), 1);
	frame_put(&frame, &ip, sizeof(ip));
	transport_put(&frame, protocol, port);
	return frame;
}

static struct frame arp(const uint8_t mac[6], const char *sender)
{
	const struct arphdr header = { .ar_hrd = htons(ARPHRD_ETHER),
				       .ar_pro = htons(ETHERTYPE_IP),
				       .ar_hln = 6,
				       .ar_pln = 4,
				       .ar_op = htons(ARPOP_REQUEST) };
	struct frame frame = frame_from(own_mac, ETHERTYPE_ARP);
	uint8_t addresses[20] = { 0 };

	memcpy(addresses, mac, 6);
	cr_assert_eq(inet_pton(AF_INET, sender, addresses + 6), 1);
	frame_put(&frame, &header, sizeof(header));
	frame_put(&frame, addresses, sizeof(addresses));
	return frame;
}

static struct frame advertisement(const char *from, const char *target)
{
	struct frame frame = ipv6(from, "ff02::1", IPPROTO_ICMPV6, ND_NEIGHBOR_ADVERT);
	struct in6_addr address;

	cr_assert_eq(inet_pton(AF_INET6, target, &address), 1);
	frame_put(&frame, &address, sizeof(address));
	return frame;
}

/* ---- what became of them ---- */

enum verdict { PASSED, REFUSED, SPOOFED, MALFORMED, VERDICTS };

static const char *const verdict_names[] = { "passed", "refused", "spoofed", "malformed" };

static void counts_take(const struct device *device, uint64_t ret[VERDICTS])
{
	struct guard_tap_counts counts;

	cr_assert_eq(guard_tap_counts(fixture.taps, device->index, &counts), 0);
	ret[PASSED] = counts.passed_packets;
	ret[REFUSED] = counts.refused_packets;
	ret[SPOOFED] = counts.spoofed_packets;
	ret[MALFORMED] = counts.malformed_packets;
}

/* Sent behind each device, it has that verdict and no other. The devices have no noise of others:
 * what the far end's stack sends of itself comes from a MAC that is not the machine's. */
static void expect(const char *what, const struct frame *frame, enum verdict verdict)
{
	for (int i = 0; i < DEVICES; i++) {
		const struct device *device = &fixture.devices[i];
		uint64_t before[VERDICTS], after[VERDICTS];

		counts_take(device, before);
		cr_assert_eq(write(device->fd, frame->bytes, frame->used), (ssize_t)frame->used,
			     "%s: %s", what, strerror(errno));
		counts_take(device, after);
		for (int wait = 0; after[verdict] == before[verdict] && wait < 1000; wait++) {
			usleep(1000);
			counts_take(device, after);
		}
		for (int other = 0; other < VERDICTS; other++) {
			if (other != (int)SPOOFED || verdict == SPOOFED)
				cr_expect_eq(after[other] > before[other], other == (int)verdict,
					     "%s, %s: %s", device->kind, what,
					     verdict_names[other]);
		}
	}
}

static struct guard_ports tcp(uint16_t first, uint16_t last)
{
	return (struct guard_ports){ .first = first, .last = last, .protocol = IPPROTO_TCP };
}

static void allow(const char *address, uint8_t prefix_bits, uint32_t rule, struct guard_ports ports)
{
	struct guard_destination to = { .rule = rule, .port_count = 1 };

	to.ports[0] = ports;
	if (inet_pton(AF_INET, address, to.address + 12) == 1) {
		memset(to.address + 10, 0xff, 2);
		to.prefix_bits = (uint8_t)(96 + prefix_bits);
	} else {
		cr_assert_eq(inet_pton(AF_INET6, address, to.address), 1);
		to.prefix_bits = prefix_bits;
	}
	cr_assert_eq(guard_destination_set(fixture.taps, POLICY, &to), 0);
}

static void expect4(const char *to, uint8_t protocol, uint16_t port, enum verdict verdict)
{
	struct frame frame = ipv4(own4, to, protocol, port);

	expect(to, &frame, verdict);
}

static void expect6(const char *to, uint8_t protocol, uint16_t port, enum verdict verdict)
{
	struct frame frame = ipv6(own6, to, protocol, port);

	expect(to, &frame, verdict);
}

/* ---- claims ---- */

Test(tap, nothing_is_allowed_that_no_destination_names)
{
	expect4("192.0.2.1", IPPROTO_TCP, 443, REFUSED);
	expect4("192.0.2.1", IPPROTO_UDP, 53, REFUSED);
	expect4("192.0.2.1", IPPROTO_ICMP, ICMP_ECHO, REFUSED);
	expect6("2001:db8::1", IPPROTO_TCP, 443, REFUSED);
}

Test(tap, a_destination_is_an_address_range_a_protocol_and_ports)
{
	allow("192.0.2.0", 24, 1, tcp(443, 445));
	allow("2001:db8::", 32, 2, (struct guard_ports){ 53, 53, IPPROTO_UDP, 2, false });
	allow("198.51.100.1", 32, 3,
	      (struct guard_ports){ ICMP_ECHO, ICMP_ECHO, IPPROTO_ICMP, 3, false });
	expect4("192.0.2.1", IPPROTO_TCP, 443, PASSED);
	expect4("192.0.2.255", IPPROTO_TCP, 445, PASSED);
	expect4("192.0.2.1", IPPROTO_TCP, 442, REFUSED);
	expect4("192.0.2.1", IPPROTO_TCP, 446, REFUSED);
	expect4("192.0.2.1", IPPROTO_UDP, 443, REFUSED);
	expect4("192.0.3.1", IPPROTO_TCP, 443, REFUSED);
	expect4("198.51.100.1", IPPROTO_ICMP, ICMP_ECHO, PASSED);
	expect4("198.51.100.1", IPPROTO_ICMP, ICMP_REDIRECT, REFUSED);
	expect6("2001:db8:1::7", IPPROTO_UDP, 53, PASSED);
	expect6("2001:db9::7", IPPROTO_UDP, 53, REFUSED);
	/* IPv6's spelling of an IPv4 address is no way round. */
	expect6("::ffff:192.0.3.1", IPPROTO_TCP, 443, REFUSED);
}

Test(tap, the_longest_prefix_decides_alone)
{
	allow("10.0.0.0", 8, 1, tcp(1, 65535));
	allow("10.1.0.0", 16, 2, tcp(443, 443));
	expect4("10.2.0.1", IPPROTO_TCP, 22, PASSED);
	expect4("10.1.0.1", IPPROTO_TCP, 22, REFUSED);
	expect4("10.1.0.1", IPPROTO_TCP, 443, PASSED);
}

Test(tap, metadata_services_are_refused_whatever_is_allowed)
{
	allow("0.0.0.0", 0, 1, tcp(1, 65535));
	allow("169.254.169.254", 32, 2, tcp(80, 80));
	allow("::", 0, 3, tcp(1, 65535));
	expect4("203.0.113.9", IPPROTO_TCP, 80, PASSED);
	expect4("169.254.169.254", IPPROTO_TCP, 80, REFUSED);
	expect4("169.254.170.2", IPPROTO_TCP, 80, REFUSED);
	expect4("100.100.100.200", IPPROTO_TCP, 80, REFUSED);
	expect6("2001:db8::9", IPPROTO_TCP, 80, PASSED);
	expect6("fd00:ec2::254", IPPROTO_TCP, 80, REFUSED);
	expect6("::ffff:169.254.169.254", IPPROTO_TCP, 80, REFUSED);
	expect6("fe80::1", IPPROTO_TCP, 80, REFUSED);
}

Test(tap, a_machine_sends_from_its_own_addresses_only)
{
	const uint8_t strange_mac[6] = { 0x02, 0xd5, 0xec, 0, 0, 2 };
	struct frame frame;

	allow("0.0.0.0", 0, 1, tcp(1, 65535));
	allow("::", 0, 2, tcp(1, 65535));
	frame = ipv4("10.80.0.3", "192.0.2.1", IPPROTO_TCP, 443);
	expect("another IPv4 address", &frame, SPOOFED);
	frame = ipv6("fd5e:ec::3", "2001:db8::1", IPPROTO_TCP, 443);
	expect("another IPv6 address", &frame, SPOOFED);
	frame = ipv4(own4, "192.0.2.1", IPPROTO_TCP, 443);
	memcpy(frame.bytes + ETH_ALEN, strange_mac, sizeof(strange_mac));
	expect("another MAC", &frame, SPOOFED);
	frame = arp(own_mac, "10.80.0.1");
	expect("ARP for the gateway's address", &frame, SPOOFED);
	frame = arp(strange_mac, own4);
	expect("ARP with another MAC inside", &frame, SPOOFED);
	frame = advertisement(own6, "fd5e:ec::1");
	expect("a neighbour's advertisement", &frame, SPOOFED);
	frame = advertisement("fe80::1", own6);
	expect("an advertisement from another", &frame, SPOOFED);
}

Test(tap, neighbours_are_found_without_a_rule)
{
	struct frame frame = arp(own_mac, own4);

	expect("ARP", &frame, PASSED);
	frame = arp(own_mac, "0.0.0.0");
	expect("ARP probe", &frame, PASSED);
	frame = ipv6("::", "ff02::1:ff00:2", IPPROTO_ICMPV6, ND_NEIGHBOR_SOLICIT);
	expect("duplicate address detection", &frame, PASSED);
	frame = ipv6(own6, "ff02::1:ff00:1", IPPROTO_ICMPV6, ND_NEIGHBOR_SOLICIT);
	expect("solicitation", &frame, PASSED);
	frame = advertisement(own6, own6);
	expect("advertisement", &frame, PASSED);
	frame = advertisement(own_link_local, own_link_local);
	expect("advertisement of the link-local address", &frame, PASSED);
	frame = ipv6(own6, "ff02::1", IPPROTO_ICMPV6, ND_ROUTER_ADVERT);
	expect("a router's advertisement", &frame, REFUSED);
}

Test(tap, what_is_not_whole_and_plain_is_dropped)
{
	struct frame frame;

	allow("0.0.0.0", 0, 1, tcp(1, 65535));
	allow("::", 0, 2, tcp(1, 65535));
	frame = ipv4(own4, "192.0.2.1", IPPROTO_TCP, 443);
	frame.bytes[FRAGMENT_AT] = IP_MF >> 8;
	expect("a first fragment", &frame, MALFORMED);
	frame.bytes[FRAGMENT_AT] = 0;
	frame.bytes[FRAGMENT_AT + 1] = 1;
	expect("a later fragment", &frame, MALFORMED);
	frame = ipv4(own4, "192.0.2.1", IPPROTO_TCP, 443);
	frame.bytes[ETH_HLEN] = 4 << 4 | 6;
	expect("options", &frame, MALFORMED);
	frame = ipv4(own4, "192.0.2.1", IPPROTO_GRE, 0);
	expect("a tunnel", &frame, MALFORMED);
	frame = ipv4(own4, "192.0.2.1", IPPROTO_SCTP, 0);
	expect("another transport", &frame, MALFORMED);
	frame = ipv4(own4, "192.0.2.1", IPPROTO_TCP, 443);
	frame.used -= sizeof(struct tcphdr) / 2;
	expect("half a header", &frame, MALFORMED);
	frame = ipv6(own6, "2001:db8::1", IPPROTO_FRAGMENT, 0);
	expect("an IPv6 fragment", &frame, MALFORMED);
	frame = ipv6(own6, "2001:db8::1", IPPROTO_HOPOPTS, 0);
	expect("hop-by-hop options", &frame, MALFORMED);
	frame = frame_from(own_mac, ETHERTYPE_VLAN);
	frame_put(&frame, (const char[46]){ 0 }, 46);
	expect("another protocol", &frame, MALFORMED);
}

Test(tap, new_settings_hold_at_once_and_a_policy_can_be_dropped)
{
	struct guard_tap tap = own_tap();

	allow("192.0.2.0", 24, 1, tcp(443, 443));
	expect4("192.0.2.1", IPPROTO_TCP, 443, PASSED);
	tap.policy = POLICY + 1;
	for (int i = 0; i < DEVICES; i++)
		cr_assert_eq(guard_tap_set(fixture.taps, fixture.devices[i].index, &tap), 0);
	expect4("192.0.2.1", IPPROTO_TCP, 443, REFUSED);
	tap.policy = POLICY;
	for (int i = 0; i < DEVICES; i++)
		cr_assert_eq(guard_tap_set(fixture.taps, fixture.devices[i].index, &tap), 0);
	expect4("192.0.2.1", IPPROTO_TCP, 443, PASSED);
	cr_assert_eq(guard_destinations_drop(fixture.taps, POLICY), 0);
	expect4("192.0.2.1", IPPROTO_TCP, 443, REFUSED);
}

Test(tap, every_flow_is_counted_with_its_rule_and_forgotten_with_the_tap)
{
	const struct device *device = &fixture.devices[0];
	const struct guard_tap tap = own_tap();
	struct guard_flow flows[4];

	allow("192.0.2.0", 24, 9, tcp(443, 443));
	for (int i = 0; i < 3; i++)
		expect4("192.0.2.1", IPPROTO_TCP, 443, PASSED);
	expect4("192.0.2.1", IPPROTO_TCP, 22, REFUSED);
	cr_assert_eq(guard_tap_flows(fixture.taps, device->index, flows, 4), 2);
	for (int i = 0; i < 2; i++) {
		cr_expect_eq(flows[i].rule, 9);
		cr_expect_eq(flows[i].protocol, IPPROTO_TCP);
		cr_expect_eq(flows[i].port, flows[i].is_refused ? 22 : 443);
		cr_expect_eq(flows[i].packets, flows[i].is_refused ? 1 : 3);
		cr_expect_eq(flows[i].bytes, flows[i].packets * 54);
	}
	cr_assert_eq(guard_tap_clear(fixture.taps, device->index), 0);
	cr_assert_eq(guard_tap_set(fixture.taps, device->index, &tap), 0);
	cr_expect_eq(guard_tap_flows(fixture.taps, device->index, flows, 4), 0);
}

/* Does a frame get through the device to those who listen on it? */
static bool arrives(const struct device *device)
{
	struct sockaddr_ll near = { .sll_family = AF_PACKET,
				    .sll_protocol = htons(ETH_P_IP),
				    .sll_ifindex = (int)device->index };
	auto_close int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct frame frame = ipv4(own4, "192.0.2.1", IPPROTO_TCP, 443);
	char seen[FRAME_BYTES_MAX];

	cr_assert_eq(bind(fd, (const struct sockaddr *)&near, sizeof(near)), 0);
	cr_assert_eq(write(device->fd, frame.bytes, frame.used), (ssize_t)frame.used);
	for (int wait = 0; wait < 200; wait++) {
		if (recv(fd, seen, sizeof(seen), 0) == (ssize_t)frame.used)
			return true;
		usleep(1000);
	}
	return false;
}

Test(tap, what_is_dropped_does_not_arrive_and_a_cleared_interface_is_nobodys)
{
	for (int i = 0; i < DEVICES; i++) {
		const struct device *device = &fixture.devices[i];

		cr_expect(!arrives(device), "%s", device->kind);
		allow("192.0.2.1", 32, 1, tcp(443, 443));
		cr_expect(arrives(device), "%s", device->kind);
		cr_assert_eq(guard_destinations_drop(fixture.taps, POLICY), 0);
		cr_expect(!arrives(device), "%s", device->kind);
		cr_assert_eq(guard_tap_clear(fixture.taps, device->index), 0);
		cr_expect(arrives(device), "%s", device->kind);
	}
}

Test(tap, it_goes_on_without_who_attached_it)
{
	guard_taps_close(fixture.taps);
	cr_expect(!arrives(&fixture.devices[0]));
	cr_expect(!arrives(&fixture.devices[1]));
	cr_assert_eq(guard_taps_open(&fixture.taps), 0);
}

Test(tap, bad_settings_are_refused)
{
	const struct guard_tap tap = own_tap();
	struct guard_destination to = { .prefix_bits = 129 };

	cr_expect_eq(guard_tap_set(fixture.taps, 4242, &tap), -ENODEV);
	cr_expect_eq(guard_destination_set(fixture.taps, POLICY, &to), -EINVAL);
	to = (struct guard_destination){ .prefix_bits = 128, .port_count = 9 };
	cr_expect_eq(guard_destination_set(fixture.taps, POLICY, &to), -EINVAL);
	to = (struct guard_destination){ .port_count = 1 };
	to.ports[0] = (struct guard_ports){ .first = 2, .last = 1 };
	cr_expect_eq(guard_destination_set(fixture.taps, POLICY, &to), -EINVAL);
}
