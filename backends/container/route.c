/*
 * The messages of route.h: one request, one acknowledgement, at once. Called by workers and by the
 * engine's control thread. Must hold: no libc state, no allocation.
 */
#include "backends/container/route.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "backends/container/kernel.h"

enum { MESSAGE_BYTES = 512, ACKNOWLEDGEMENT_BYTES = 1024, LINK_BYTES = 8192 };

struct message {
	struct nlmsghdr header;
	union {
		struct ifinfomsg link;
		struct ifaddrmsg address;
		struct rtmsg route;
		char bytes[MESSAGE_BYTES];
	};
};

static void message_begin(struct message *m, uint16_t type, uint16_t flags, uint32_t bytes)
{
	memset(m, 0, sizeof *m);
	m->header.nlmsg_type = type;
	m->header.nlmsg_flags = (uint16_t)(NLM_F_REQUEST | NLM_F_ACK | flags);
	m->header.nlmsg_len = NLMSG_LENGTH(bytes);
}

/* What there is room for: names and numbers of fixed size. */
static struct rtattr *attribute_add(struct message *m, uint16_t type, const void *bytes,
				    uint32_t count)
{
	struct rtattr *attribute = (struct rtattr *)((char *)m + NLMSG_ALIGN(m->header.nlmsg_len));

	attribute->rta_type = type;
	attribute->rta_len = (uint16_t)RTA_LENGTH(count);
	if (count)
		memcpy(RTA_DATA(attribute), bytes, count);
	m->header.nlmsg_len = NLMSG_ALIGN(m->header.nlmsg_len) + RTA_ALIGN(attribute->rta_len);
	return attribute;
}

static void nest_end(const struct message *m, struct rtattr *nest)
{
	nest->rta_len = (uint16_t)((const char *)m + m->header.nlmsg_len - (char *)nest);
}

static void name_add(struct message *m, const char *name)
{
	attribute_add(m, IFLA_IFNAME, name, (uint32_t)strlen(name) + 1);
}

static long message_send(int fd, const struct message *m)
{
	struct {
		struct nlmsghdr header;
		struct nlmsgerr error;
		char rest[ACKNOWLEDGEMENT_BYTES];
	} answer;
	long r = KERNEL_CALL(SYS_sendto, fd, (long)m, m->header.nlmsg_len, 0, 0, 0);

	if (r >= 0)
		r = KERNEL_CALL(SYS_recvfrom, fd, (long)&answer, sizeof answer, MSG_DONTWAIT, 0, 0);
	if (r < 0)
		return r;
	return answer.header.nlmsg_type == NLMSG_ERROR ? answer.error.error : -EPROTO;
}

static long index_of(int fd, const char *name)
{
	struct ifreq request = { .ifr_ifindex = 0 };
	long r;

	memcpy(request.ifr_name, name, strnlen(name, IFNAMSIZ - 1));
	r = KERNEL_CALL(SYS_ioctl, fd, SIOCGIFINDEX, (long)&request);
	return r < 0 ? r : request.ifr_ifindex;
}

long route_open(void)
{
	return KERNEL_CALL(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
}

long route_pair_make(int fd, const char *name, const char *peer, int peer_ns_fd)
{
	const struct ifinfomsg none = { .ifi_family = AF_UNSPEC };
	struct rtattr *info, *data, *other;
	struct message m;

	message_begin(&m, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, sizeof m.link);
	name_add(&m, name);
	info = attribute_add(&m, IFLA_LINKINFO, NULL, 0);
	attribute_add(&m, IFLA_INFO_KIND, "veth", 4);
	data = attribute_add(&m, IFLA_INFO_DATA, NULL, 0);
	other = attribute_add(&m, VETH_INFO_PEER, &none, sizeof none);
	name_add(&m, peer);
	attribute_add(&m, IFLA_NET_NS_FD, &peer_ns_fd, sizeof peer_ns_fd);
	nest_end(&m, other);
	nest_end(&m, data);
	nest_end(&m, info);
	return message_send(fd, &m);
}

long route_link_up(int fd, const char *name)
{
	struct message m;

	message_begin(&m, RTM_NEWLINK, 0, sizeof m.link);
	m.link.ifi_flags = m.link.ifi_change = IFF_UP;
	name_add(&m, name);
	return message_send(fd, &m);
}

/* The attribute of a link's description; NULL: it has none. */
static const struct rtattr *attribute_find(const struct nlmsghdr *header, uint16_t type)
{
	const char *at = (const char *)header + NLMSG_SPACE(sizeof(struct ifinfomsg));
	const char *end = (const char *)header + header->nlmsg_len;

	while (end - at >= (ptrdiff_t)sizeof(struct rtattr)) {
		const struct rtattr *attribute = (const struct rtattr *)at;

		if (attribute->rta_len < sizeof *attribute || attribute->rta_len > end - at)
			return NULL;
		if (attribute->rta_type == type)
			return attribute;
		at += RTA_ALIGN(attribute->rta_len);
	}
	return NULL;
}

long route_link_count(int fd, const char *name, uint64_t *ret_received, uint64_t *ret_sent)
{
	union {
		struct nlmsghdr header;
		char bytes[LINK_BYTES];
	} answer;
	const struct rtattr *found;
	struct rtnl_link_stats64 count;
	struct message m;
	long r;

	message_begin(&m, RTM_GETLINK, 0, sizeof m.link);
	m.header.nlmsg_flags = NLM_F_REQUEST; /* the answer is enough */
	name_add(&m, name);
	r = KERNEL_CALL(SYS_sendto, fd, (long)&m, m.header.nlmsg_len, 0, 0, 0);
	if (r >= 0)
		r = KERNEL_CALL(SYS_recvfrom, fd, (long)&answer, sizeof answer, MSG_DONTWAIT, 0, 0);
	if (r < 0)
		return r;
	if (answer.header.nlmsg_type != RTM_NEWLINK || answer.header.nlmsg_len > (uint64_t)r)
		return -EPROTO;
	found = attribute_find(&answer.header, IFLA_STATS64);
	if (!found || RTA_PAYLOAD(found) < sizeof count)
		return -EPROTO;
	memcpy(&count, RTA_DATA(found), sizeof count);
	*ret_received = count.rx_bytes;
	*ret_sent = count.tx_bytes;
	return 0;
}

long route_link_delete(int fd, const char *name)
{
	struct message m;

	message_begin(&m, RTM_DELLINK, 0, sizeof m.link);
	name_add(&m, name);
	return message_send(fd, &m);
}

long route_address_add(int fd, const char *name, uint32_t address, uint8_t prefix)
{
	const uint32_t own = htonl(address);
	long index = index_of(fd, name);
	struct message m;

	if (index < 0)
		return index;
	message_begin(&m, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, sizeof m.address);
	m.address.ifa_family = AF_INET;
	m.address.ifa_prefixlen = prefix;
	m.address.ifa_index = (uint32_t)index;
	attribute_add(&m, IFA_LOCAL, &own, sizeof own);
	attribute_add(&m, IFA_ADDRESS, &own, sizeof own);
	return message_send(fd, &m);
}

long route_via_add(int fd, uint32_t destination, uint8_t prefix, uint32_t gateway)
{
	const uint32_t to = htonl(destination), via = htonl(gateway);
	struct message m;

	message_begin(&m, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, sizeof m.route);
	m.route.rtm_family = AF_INET;
	m.route.rtm_table = RT_TABLE_MAIN;
	m.route.rtm_protocol = RTPROT_STATIC;
	m.route.rtm_scope = RT_SCOPE_UNIVERSE;
	m.route.rtm_type = RTN_UNICAST;
	m.route.rtm_dst_len = prefix; /* 0: everywhere */
	if (prefix)
		attribute_add(&m, RTA_DST, &to, sizeof to);
	attribute_add(&m, RTA_GATEWAY, &via, sizeof via);
	return message_send(fd, &m);
}

long route_local_add(int fd, const char *name, const void *address, uint8_t prefix, int family)
{
	long index = index_of(fd, name);
	struct message m;
	uint32_t link;

	if (index < 0)
		return index;
	link = (uint32_t)index;
	message_begin(&m, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, sizeof m.route);
	m.route.rtm_family = (unsigned char)family;
	m.route.rtm_dst_len = prefix;
	m.route.rtm_table = RT_TABLE_LOCAL;
	m.route.rtm_protocol = RTPROT_STATIC;
	m.route.rtm_scope = RT_SCOPE_HOST;
	m.route.rtm_type = RTN_LOCAL;
	attribute_add(&m, RTA_DST, address, family == AF_INET ? 4 : 16);
	attribute_add(&m, RTA_OIF, &link, sizeof link);
	return message_send(fd, &m);
}
