// Does CRC-32C give the values of RFC 3720, by the processor's instruction and by tables alike?
#include "check.h"
#include "crc32c.h"
#include "data.h"

int main(void)
{
	static unsigned char data[9000];

	calyx_crc32c_init();
	CHECK(calyx_crc32c("123456789", 9) == 0xe3069283, "the check value");
	CHECK(calyx_crc32c(data, 32) == 0x8a9136aa, "32 bytes of 0, RFC 3720 B.4");
	memset(data, 0xff, 32);
	CHECK(calyx_crc32c(data, 32) == 0x62a8ab43, "32 bytes of 0xff, RFC 3720 B.4");
	for (int i = 0; i < 32; i++)
		data[i] = (unsigned char)i;
	CHECK(calyx_crc32c(data, 32) == 0x46dd794e, "0 to 31, RFC 3720 B.4");
	CHECK(calyx_crc32c_by_tables(data, 32) == 0x46dd794e, "by tables");
	calyx_data_fill(data, sizeof(data), 3);
	for (size_t length = 0; length < sizeof(data); length += length < 40 ? 1 : 397)
		CHECK(calyx_crc32c(data + length % 7, length) == calyx_crc32c_by_tables(data + length % 7, length),
		      "length %zu", length);
	return 0;
}
