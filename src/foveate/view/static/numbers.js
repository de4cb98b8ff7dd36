// 1234 -> "1,234"
export const inNumber = new Intl.NumberFormat("en").format;
