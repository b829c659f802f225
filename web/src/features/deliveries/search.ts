import { oneOf, text, type RawSearch } from "@/app/search";

export const DELIVERY_STATES = ["retrying", "dead", "pending", "delivered"] as const;
export type DeliveryState = (typeof DELIVERY_STATES)[number];

export interface DeliveriesSearch {
  state?: DeliveryState;
  url?: string;
  task?: string;
}

export function deliveriesSearch(search: RawSearch): DeliveriesSearch {
  return { state: oneOf(search, "state", DELIVERY_STATES), url: text(search, "url"), task: text(search, "task") };
}
