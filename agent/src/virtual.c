/* SPDX-License-Identifier: Apache-2.0
 *
 * Facts of the virtualisation below this guest, from CPUID, DMI, Xen's and the device tree's files, and container
 * hints.
 */
#include "facts.h"

#include <string.h>
#include <unistd.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

#include "calyx/text.h"
#include "place.h"

#define DMI "/sys/class/dmi/id/"

struct virtual
{
	char cpuid[16], vendor[PLACE_TEXT], product[PLACE_TEXT];
	bool bit_known, bit; /* CPUID says that a hypervisor is present */
};

#ifdef __x86_64__
static void signature_of(unsigned int leaf, char signature[13])
{
	unsigned int a, b, c, d;

	__cpuid(leaf, a, b, c, d);
	memcpy(signature, &b, 4);
	memcpy(signature + 4, &c, 4);
	memcpy(signature + 8, &d, 4);
	signature[12] = 0;
}

static void read_cpuid(struct virtual *virtual)
{
	unsigned int a, b, c, d;
	char second[13];

	if (!__get_cpuid(1, &a, &b, &c, &d))
		return;
	virtual->bit_known = true;
	virtual->bit = c >> 31;
	if (!virtual->bit)
		return;
	signature_of(0x40000000, virtual->cpuid);
	/* KVM and Xen show Hyper-V's name first when they offer its interface, and their own 0x100 above. */
	signature_of(0x40000100, second);
	if (!strcmp(second, "KVMKVMKVM") || !strcmp(second, "XenVMMXenVMM"))
		memcpy(virtual->cpuid, second, sizeof(second));
}
#else
static void read_cpuid(struct virtual *virtual)
{
	virtual->bit_known = false;
}
#endif

static const char *container_kind(void)
{
	static char text[PLACE_TEXT];

	if (place_attribute("", "/run/systemd/container", text) && *text)
		return text;
	if (!access("/.dockerenv", F_OK))
		return "docker";
	return access("/run/.containerenv", F_OK) ? NULL : "podman";
}

static const char *by_cpuid(const char *signature)
{
	static const char *const known[][2] = {
		{"Microsoft Hv", "hyperv"}, {"KVMKVMKVM", "kvm"},    {"Linux KVM Hv", "kvm"},
		{"VMwareVMware", "vmware"}, {"XenVMMXenVMM", "xen"}, {"TCGTCGTCGTCG", "qemu"},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (!strcmp(signature, known[i][0]))
			return known[i][1];
	return NULL;
}

static const char *by_firmware(const struct virtual *virtual)
{
	char text[PLACE_TEXT];

	if (!strcmp(virtual->vendor, "Microsoft Corporation") && !strcmp(virtual->product, "Virtual Machine"))
		return "hyperv";
	if (!strncmp(virtual->vendor, "VMware", 6))
		return "vmware";
	if ((place_attribute("", "/sys/hypervisor/type", text) && !strcmp(text, "xen")) || !access("/proc/xen", F_OK))
		return "xen";
	if (!access("/proc/device-tree/hypervisor/compatible", F_OK) &&
	    place_attribute("", "/proc/device-tree/hypervisor/compatible", text))
		return calyx_find(text, "kvm") ? "kvm" : calyx_find(text, "xen") ? "xen" : "unknown";
	if (calyx_find(virtual->product, "KVM"))
		return "kvm";
	return strcmp(virtual->vendor, "QEMU") ? NULL : "qemu";
}

static const char *name_of(const struct virtual *virtual, const char *container)
{
	const char *name = by_cpuid(virtual->cpuid);

	if (!name)
		name = by_firmware(virtual);
	if (name)
		return name;
	if (container)
		return "container";
	return virtual->bit_known && !virtual->bit ? "none" : "unknown";
}

void facts_write_virtual(struct json *json)
{
	const char *container = container_kind();
	struct virtual virtual = {0};

	read_cpuid(&virtual);
	if (!place_attribute("", DMI "sys_vendor", virtual.vendor))
		virtual.vendor[0] = 0;
	if (!place_attribute("", DMI "product_name", virtual.product))
		virtual.product[0] = 0;
	json_text(json, "hypervisor", name_of(&virtual, container));
	json_text(json, "product", virtual.product[0] ? virtual.product : NULL);
	json_key(json, "virtual");
	json_object(json);
	json_text(json, "cpuid", virtual.cpuid[0] ? virtual.cpuid : NULL);
	json_text(json, "vendor", virtual.vendor[0] ? virtual.vendor : NULL);
	json_text(json, "container", container);
	json_object_end(json);
}
