/* Claims of egress by IPv6, for test_engine_egress.c. */
#pragma once

#include <sys/types.h>

struct engine;

/* Before any of them: the process that lives in the internet. */
void six_begin(pid_t internet);

void IPv6_leads_out_and_the_internet_sees_the_hosts_address(struct engine *e);
void a_source_of_IPv6_that_is_not_its_own_never_leaves(struct engine *e);
void neither_host_nor_metadata_nor_neighbours_are_reached_by_IPv6(struct engine *e);
void nothing_of_IPv6_can_be_changed_inside_and_no_router_speaks_up(struct engine *e);
void a_policy_leads_by_IPv6_where_it_allows_and_nowhere_else(struct engine *e);
/* Without --egress6. */
void where_there_is_no_range_of_IPv6_it_leads_nowhere(struct engine *e);
