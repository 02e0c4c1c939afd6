#pragma once
// What the specialisations of wgmma for one N share: inline assembly names each register of D, so
// an N of 64 has 32 names and 32 operands. D is d[N / 8][4]; A lies in a[0] to a[3], or behind the
// descriptor a; B behind the descriptor b; accumulate == 0 overwrites D.
// WGMMA_FROM_REGISTERS and WGMMA_FROM_SHARED are a specialisation's body: the instruction's shape
// and types, N, and what follows the predicate.

#define WGMMA_CODE(...) WGMMA_CODE_OF(__VA_ARGS__)  // expands the lists first
#define WGMMA_CODE_OF(instruction, sums, operands, predicate, rest) \
  "{.reg .pred p;\n"                                                \
  "setp.ne.b32 p, " predicate                                       \
  ", 0;\n"                                                          \
  "wgmma.mma_async.sync.aligned." instruction " {" sums "}, " operands ", p, " rest ";}"

#define WGMMA_FROM_REGISTERS(instruction, n, rest)                                 \
  asm volatile(WGMMA_CODE(instruction, WGMMA_NAMES_##n, WGMMA_REGISTERS_##n, rest) \
               : WGMMA_SUMS_##n(d, 0)                                              \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate))
#define WGMMA_FROM_SHARED(instruction, n, rest)                                 \
  asm volatile(WGMMA_CODE(instruction, WGMMA_NAMES_##n, WGMMA_SHARED_##n, rest) \
               : WGMMA_SUMS_##n(d, 0)                                           \
               : "l"(a), "l"(b), "r"(accumulate))

// Names of D's registers.
#define WGMMA_NAMES_8 "%0, %1, %2, %3"
#define WGMMA_NAMES_16 WGMMA_NAMES_8 ", %4, %5, %6, %7"
#define WGMMA_NAMES_24 WGMMA_NAMES_16 ", %8, %9, %10, %11"
#define WGMMA_NAMES_32 WGMMA_NAMES_16 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define WGMMA_NAMES_40 WGMMA_NAMES_32 ", %16, %17, %18, %19"
#define WGMMA_NAMES_48 WGMMA_NAMES_32 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define WGMMA_NAMES_56 WGMMA_NAMES_48 ", %24, %25, %26, %27"
#define WGMMA_NAMES_64 WGMMA_NAMES_48 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_NAMES_80 WGMMA_NAMES_64 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define WGMMA_NAMES_96 WGMMA_NAMES_80 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define WGMMA_NAMES_112 WGMMA_NAMES_96 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define WGMMA_NAMES_128 WGMMA_NAMES_112 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_NAMES_256                                                                          \
  WGMMA_NAMES_128                                                                                \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"             \
  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"             \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111" \
  ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, " \
  "%127"

// The registers of d[i] and on.
#define WGMMA_SUMS_8(d, i) "+f"((d)[i][0]), "+f"((d)[i][1]), "+f"((d)[i][2]), "+f"((d)[i][3])
#define WGMMA_SUMS_16(d, i) WGMMA_SUMS_8(d, i), WGMMA_SUMS_8(d, i + 1)
#define WGMMA_SUMS_24(d, i) WGMMA_SUMS_16(d, i), WGMMA_SUMS_8(d, i + 2)
#define WGMMA_SUMS_32(d, i) WGMMA_SUMS_16(d, i), WGMMA_SUMS_16(d, i + 2)
#define WGMMA_SUMS_40(d, i) WGMMA_SUMS_32(d, i), WGMMA_SUMS_8(d, i + 4)
#define WGMMA_SUMS_48(d, i) WGMMA_SUMS_32(d, i), WGMMA_SUMS_16(d, i + 4)
#define WGMMA_SUMS_56(d, i) WGMMA_SUMS_48(d, i), WGMMA_SUMS_8(d, i + 6)
#define WGMMA_SUMS_64(d, i) WGMMA_SUMS_32(d, i), WGMMA_SUMS_32(d, i + 4)
#define WGMMA_SUMS_80(d, i) WGMMA_SUMS_64(d, i), WGMMA_SUMS_16(d, i + 8)
#define WGMMA_SUMS_96(d, i) WGMMA_SUMS_64(d, i), WGMMA_SUMS_32(d, i + 8)
#define WGMMA_SUMS_112(d, i) WGMMA_SUMS_96(d, i), WGMMA_SUMS_16(d, i + 12)
#define WGMMA_SUMS_128(d, i) WGMMA_SUMS_64(d, i), WGMMA_SUMS_64(d, i + 8)
#define WGMMA_SUMS_256(d, i) WGMMA_SUMS_128(d, i), WGMMA_SUMS_128(d, i + 16)

// Names of what follows D: A and B, and the predicate's source.
#define WGMMA_REGISTERS_8 "{%4, %5, %6, %7}, %8", "%9"
#define WGMMA_REGISTERS_16 "{%8, %9, %10, %11}, %12", "%13"
#define WGMMA_REGISTERS_24 "{%12, %13, %14, %15}, %16", "%17"
#define WGMMA_REGISTERS_32 "{%16, %17, %18, %19}, %20", "%21"
#define WGMMA_REGISTERS_40 "{%20, %21, %22, %23}, %24", "%25"
#define WGMMA_REGISTERS_48 "{%24, %25, %26, %27}, %28", "%29"
#define WGMMA_REGISTERS_56 "{%28, %29, %30, %31}, %32", "%33"
#define WGMMA_REGISTERS_64 "{%32, %33, %34, %35}, %36", "%37"
#define WGMMA_REGISTERS_80 "{%40, %41, %42, %43}, %44", "%45"
#define WGMMA_REGISTERS_96 "{%48, %49, %50, %51}, %52", "%53"
#define WGMMA_REGISTERS_112 "{%56, %57, %58, %59}, %60", "%61"
#define WGMMA_REGISTERS_128 "{%64, %65, %66, %67}, %68", "%69"
#define WGMMA_REGISTERS_256 "{%128, %129, %130, %131}, %132", "%133"
#define WGMMA_SHARED_8 "%4, %5", "%6"
#define WGMMA_SHARED_16 "%8, %9", "%10"
#define WGMMA_SHARED_32 "%16, %17", "%18"
#define WGMMA_SHARED_64 "%32, %33", "%34"
#define WGMMA_SHARED_128 "%64, %65", "%66"
